"""`figures.js` computes in the page what `odt_sim.metrics.device` computes in Python."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, TrainableModel
from odt_sim.data.store.columns import arrays_of, prefixed, rows_of
from odt_sim.metrics.device import mean_loss, model_figures, model_loss, output_figures
from odt_sim.model.contract.manifest import Output, task_of
from odt_sim.model.contract.names import full
from odt_sim.model.reading.flatbuffer import TensorInfo
from odt_sim.phone.routes import of_output

RNG = np.random.default_rng(0)
PROBABILITIES = RNG.dirichlet(np.ones(4), 30).astype(np.float32)
LOGITS = RNG.normal(size=(30, 4)).astype(np.float32).round(1)  # with ties
VALUES = RNG.normal(size=(30, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, 30).astype(np.int32)  # class 3 does not occur
ONE_HOT = np.eye(4, dtype=np.float32)[RNG.integers(0, 4, 30)]
BINARY = RNG.integers(0, 2, (30, 1)).astype(np.float32)
TOKENS = RNG.integers(0, 4, (10, 3)).astype(np.int32)
BROKEN = np.where(RNG.random((30, 4)) < 0.05, np.nan, LOGITS).astype(np.float32)
CONSTANT = np.tile(np.float32([1, 0, 2]), (30, 1))

CASES: dict[str, tuple[Any, Any, str, bool]] = {
    "labels, logits": (LOGITS, LABELS, "sparse_categorical_crossentropy", True),
    "labels, probabilities": (PROBABILITIES, LABELS, "sparse_categorical_crossentropy", False),
    "labels of sequences": (LOGITS.repeat(1, 0).reshape(10, 3, 4), TOKENS, "sparse_categorical_crossentropy", True),
    "labels in a column": (LOGITS, LABELS[:, np.newaxis], "sparse_categorical_crossentropy", True),
    "diverged": (BROKEN, LABELS, "sparse_categorical_crossentropy", True),
    "one class": (LOGITS, np.zeros(30, np.int32), "sparse_categorical_crossentropy", True),
    "one-hot, logits": (LOGITS, ONE_HOT, "categorical_crossentropy", True),
    "one-hot, probabilities": (PROBABILITIES, ONE_HOT, "categorical_crossentropy", False),
    "divergence": (PROBABILITIES, PROBABILITIES[::-1].copy(), "kl_divergence", False),
    "binary, logits": (LOGITS[:, :1], BINARY, "binary_crossentropy", True),
    "binary, probabilities": (PROBABILITIES[:, :1], BINARY, "binary_crossentropy", False),
    "several binary labels": (LOGITS, (ONE_HOT > 0).astype(np.float32), "binary_crossentropy", True),
    "pixels": (LOGITS[:24].reshape(2, 3, 4, 4), LABELS[:24].reshape(2, 3, 4), "sparse_categorical_crossentropy", True),
    "binary pixels": (
        LOGITS[:24, :1].reshape(2, 3, 4, 1),
        BINARY[:24].reshape(2, 3, 4, 1),
        "binary_crossentropy",
        True,
    ),
    "squared": (VALUES, VALUES[::-1].copy(), "mean_squared_error", False),
    "absolute": (VALUES, VALUES[::-1].copy(), "mean_absolute_error", False),
    "huber": (VALUES, VALUES[::-1].copy(), "huber", False),
    "cosine": (VALUES, VALUES[::-1].copy(), "cosine_similarity", False),
    "constant targets": (VALUES, CONSTANT, "mean_squared_error", False),
}
BODY = """async (given) => {
  const { figures, totalLoss } = await import('./page/figures.js');
  const { outputs, answers, examples, losses } = JSON.parse(given);
  const floats = (values) => Float32Array.from(values, (value) => value ?? NaN);
  const tensors = (record) => Object.fromEntries(
    Object.entries(record).map(([name, { data, shape }]) => [name, { data: floats(data), shape }]));
  const returned = Object.fromEntries(Object.entries(losses).map(([name, values]) => [name, floats(values)]));
  const answered = { answers: tensors(answers), examples: tensors(examples), losses: returned };
  return [figures(outputs, answered), totalLoss(outputs, answered)];
}"""

QUERIES = RNG.normal(size=(8, 14)).astype(np.float32).round(1)  # with ties
RELEVANT = (RNG.random((8, 14)) < np.linspace(0, 0.4, 8)[:, np.newaxis]).astype(np.float32)  # the first query has none
RANKINGS = {
    "queries": (QUERIES, RELEVANT),
    "one query": (QUERIES[:, :1], np.float32([0, 1, 0, 0, 0, 1, 0, 0])[:, np.newaxis]),
    "nothing relevant": (QUERIES, np.zeros_like(QUERIES)),
    "diverged": (np.where(QUERIES > 1, np.nan, QUERIES), RELEVANT),
}


@pytest.mark.parametrize("loss", ["binary_crossentropy", "mean_squared_error"])
@pytest.mark.parametrize("case", RANKINGS)
def test_figures_of_rankings_equal_those_of_python(case: str, loss: str, harness: Any) -> None:
    outputs, y = RANKINGS[case]
    assert_equal(harness, outputs, y, loss, True, "ranking")


OTHER_TASKS: dict[str, tuple[Any, Any, str, bool, str]] = {
    "labels of squared errors": (LOGITS, (ONE_HOT > 0).astype(np.float32), "mean_squared_error", True, "multi_label"),
    "one-hot of squared errors": (PROBABILITIES, ONE_HOT, "mean_squared_error", False, "classification"),
    "one label": (LOGITS[:, :1], BINARY, "binary_crossentropy", True, "multi_label"),
    "values of a binary loss": (PROBABILITIES, ONE_HOT, "binary_crossentropy", False, "regression"),
    "no task": (PROBABILITIES, ONE_HOT, "categorical_crossentropy", False, "other"),
}


@pytest.mark.parametrize("case", OTHER_TASKS)
def test_task_decides_the_figures_whatever_the_loss(case: str, harness: Any) -> None:
    assert_equal(harness, *OTHER_TASKS[case])


@pytest.mark.parametrize("case", CASES)
def test_figures_equal_those_of_python(case: str, harness: Any) -> None:
    assert_equal(harness, *CASES[case])


NAMED = {
    "classification": ["top_1", "top_3", "precision", "recall", "micro_f1", "macro_f1", "iou", "perplexity"],
    "multi_label": ["precision", "recall", "balanced_accuracy", "iou"],
    "regression": ["rmse", "mape", "msle", "log_cosh", "cosine"],
    "ranking": ["ndcg_at_3", "hit_rate_at_1", "precision", "recall", "accuracy", "macro_f1"],
}
SCORES = {**CASES, **{name: (*case, "binary_crossentropy", True) for name, case in RANKINGS.items()}}


@pytest.mark.parametrize(
    "case", ["labels, logits", "labels, probabilities", "one-hot, logits", "labels of sequences", "diverged", "pixels"]
)
def test_named_metrics_of_classes_equal_those_of_python(case: str, harness: Any) -> None:
    assert_equal(harness, *CASES[case], metrics=NAMED["classification"])


@pytest.mark.parametrize(
    ("case", "task"),
    [
        ("several binary labels", "multi_label"),
        ("squared", "regression"),
        ("huber", "regression"),
        ("queries", "ranking"),
        ("one query", "ranking"),
    ],
)
def test_named_metrics_of_other_tasks_equal_those_of_python(case: str, task: str, harness: Any) -> None:
    assert_equal(harness, *SCORES[case], task, metrics=NAMED[task])


@pytest.mark.parametrize("lost", [0, 0.2])
def test_figures_of_transcripts_equal_those_of_python(lost: float, harness: Any) -> None:
    outputs = RNG.normal(size=(12, 9, 4)).astype(np.float32)
    outputs[RNG.random((12, 9)) < lost] = np.nan
    y = np.where(np.arange(5) < np.arange(12)[:, np.newaxis] % 6, RNG.integers(1, 4, (12, 5)), 0)
    y[0, :3] = [2, 1, 2]
    outputs[0, :, :] = np.eye(4)[[0, 2, 2, 0, 1, 0, 0, 2, 0]]
    output, losses = Output("", "ctc", task="transcription"), RNG.integers(0, 16, 12) / 8
    found, _ = in_page(harness, [output], {"logits": outputs}, {"y": y}, {"losses": losses})
    expected = output_figures(output, outputs, y, losses=losses)
    assert 0 < expected["exact_match"] < 1
    assert_same(found, expected)


SEQUENCES = CASES["labels of sequences"][0]
MASK = (np.arange(3) < np.arange(10)[:, np.newaxis] % 4).astype(np.int32)  # none to three positions of an example count
PADDED = np.where(MASK == 1, TOKENS, -1).astype(np.int32)
LOST = [LOGITS[:24].reshape(2, 3, 4, 4), np.where(RNG.random((2, 3, 4)) < 0.3, 255, LABELS[:24].reshape(2, 3, 4))]
COUNTED: dict[str, dict[str, Any]] = {
    "masked": {"outputs": SEQUENCES, "y": TOKENS, "mask": MASK},
    "masked by positions of one number": {"outputs": SEQUENCES, "y": TOKENS, "mask": MASK[:, :, np.newaxis]},
    "masked throughout": {"outputs": SEQUENCES, "y": TOKENS, "mask": 0 * MASK},
    "masked values": {"outputs": SEQUENCES, "y": SEQUENCES[::-1].copy(), "mask": MASK, "loss": "mean_squared_error"},
    "masked labels": {
        "outputs": SEQUENCES,
        "y": (SEQUENCES > 0).astype(np.float32),
        "mask": MASK,
        "loss": "binary_crossentropy",
    },
    "ignored class": {"outputs": SEQUENCES, "y": PADDED, "ignore_class": -1},
    "ignored class of examples": {"outputs": LOGITS, "y": LABELS, "ignore_class": 0},
    "ignored class of pixels": {"outputs": LOST[0], "y": LOST[1], "ignore_class": 255},
    "masked and ignored": {"outputs": SEQUENCES, "y": TOKENS, "mask": MASK, "ignore_class": 2},
}


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("case", COUNTED)
def test_positions_that_do_not_count_are_left_out(case: str, returned: bool, harness: Any) -> None:
    """The formula has no loss for an ignored label, so files with an ignored class return their losses."""
    given = dict(COUNTED[case])
    outputs, y, mask = given.pop("outputs"), given.pop("y"), given.pop("mask", None)
    loss, ignored = given.pop("loss", "sparse_categorical_crossentropy"), given.get("ignore_class")
    output = Output("", loss, task=task_of(loss), mask=mask is not None, **given)
    counts = None if mask is None else mask.reshape(mask.shape[:2])
    if ignored is not None:
        own = y != ignored
        counts = own if counts is None else own & (counts != 0)
    losses = {"losses": RNG.random(len(y)).astype(np.float32)} if returned or ignored in (-1, 255) else {}
    found, total = in_page(harness, [output], {"logits": outputs, "mask": mask}, {"y": y}, losses)
    more = {"losses": losses.get("losses"), "mask": counts}
    assert_same(found, output_figures(output, outputs, y, **more))
    assert total == pytest.approx(mean_loss(output, outputs, y, **more), rel=1e-6)


@pytest.mark.parametrize("losses", [(), ("losses",), ("losses", "losses_kind", "losses_size")])
def test_figures_of_several_outputs_equal_those_of_python(
    losses: tuple[str, ...], heads: TrainableModel, harness: Any
) -> None:
    x, rng = RNG.normal(size=(20, 6)).astype(np.float32), np.random.default_rng(1)
    device = Device(heads, (x, {"kind": LABELS[:20], "size": VALUES[:20, :1]}))
    answers = {name: np.asarray(array) for name, array in arrays_of(device.infer(x)).items()}
    y = {"kind": LABELS[:20], "size": VALUES[:20, :1]}
    returned = {name: rng.random(20).astype(np.float32) for name in losses}
    given = prefixed("logits", rows_of(answers)), prefixed("y", rows_of(y))
    found, total = in_page(harness, heads.outputs, *given, returned)
    by_output = {name.removeprefix("losses").removeprefix("_"): v.astype(float) for name, v in returned.items()}
    assert_same(found, model_figures(heads, answers, y, by_output, {}))
    assert total == pytest.approx(model_loss(heads, answers, y, by_output, {}), rel=1e-6)
    assert ("loss_kind" in found) is (losses != ("losses",))


def assert_equal(
    harness: Any,
    outputs: Any,
    y: Any,
    loss: str,
    from_logits: bool,
    task: str | None = None,
    metrics: Sequence[str] = (),
) -> None:
    output = Output("", loss, from_logits, 0.7, task=task or task_of(loss), metrics=tuple(metrics))
    found, found_loss = in_page(harness, [output], {"logits": outputs}, {"y": y}, {})
    expected = output_figures(output, outputs, y)
    assert_same(found, expected)
    assert found_loss == pytest.approx(mean_loss(output, outputs, y), rel=1e-9, nan_ok=True)


def assert_same(found: Mapping[str, float], expected: Mapping[str, float]) -> None:
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


def in_page(harness: Any, outputs: Sequence[Output], answers: Any, examples: Any, losses: Any) -> Any:
    """Return the metrics and the loss that the page computes."""
    tensors = {"answers": answers, "examples": examples}
    packed = {
        key: {name: packed_array(array) for name, array in arrays.items() if array is not None}
        for key, arrays in tensors.items()
    }
    names = {output: full("logits", output.name) for output in outputs}
    described = [of_output(output, TensorInfo(name, answers[name].shape, "float32")) for output, name in names.items()]
    values = {name: array.tolist() for name, array in losses.items()}
    return harness.evaluate(BODY, json.dumps({"outputs": described, **packed, "losses": values}))


def packed_array(array: Any) -> dict[str, Any]:
    values = array.ravel().astype(float)
    return {"data": [None if np.isnan(value) else value for value in values.tolist()], "shape": array.shape}
