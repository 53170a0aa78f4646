"""`figures.js` computes in the page what `odt_sim.metrics.device` computes in Python."""

import json
from typing import Any

import numpy as np
import pytest

from odt_sim.metrics.device import mean_loss, output_figures
from odt_sim.metrics.tasks import task_of_output
from odt_sim.model.manifest import Output, task_of

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
  const { figures, meanLoss } = await import('./page/figures.js');
  const { outputs, outputShape, y, yShape, ...objective } = JSON.parse(given);
  const values = { data: Float32Array.from(outputs, (v) => v ?? NaN), shape: outputShape };
  const targets = { data: Float32Array.from(y), shape: yShape };
  return [figures(values, targets, objective), meanLoss(values, targets, objective)];
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


def assert_equal(harness: Any, outputs: Any, y: Any, loss: str, from_logits: bool, task: str | None = None) -> None:
    output = Output("", loss, from_logits, 0.7, task=task or task_of(loss))
    given = {
        "outputs": [None if np.isnan(value) else float(value) for value in outputs.ravel()],
        "outputShape": outputs.shape,
        "y": y.ravel().tolist(),
        "yShape": y.shape,
        "loss": loss,
        "from_logits": from_logits,
        "delta": 0.7,
        "task": task_of_output(output, outputs.shape),
    }
    found, found_loss = harness.evaluate(BODY, json.dumps(given))
    expected = output_figures(output, outputs, y)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)
    assert found_loss == pytest.approx(mean_loss(output, outputs, y), rel=1e-9, nan_ok=True)
