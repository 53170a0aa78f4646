"""Files with an open batch size: steps with varying numbers of rows equal those of Keras."""

from typing import Any

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from coverage_table import FAMILIES
from keras import layers
from numpy.typing import NDArray
from parity.case import Case
from parity.models import MODELS

from odt_sim.export import export_model
from odt_sim.model.trainable import DEFAULT_BATCH_SIZE, TrainableModel

STEPS = (8, 3, 8, 1, 33)  # rows
CHOSEN = {
    "einsums, shared over time": "slow",
    "convolutions with strides and dilation": "slow",
    "grouped convolutions": "slow",
    "depthwise and separable convolutions": "slow",
    "average-pools": "slow",
    "batch normalization": "fast",
    "dropout of images": "slow",
    "masked positions": "slow",
    "attention": "slow",
    "merging": "slow",
    "shapes of images": "slow",
    "activation layers": "slow",
    "operations": "slow",
    "regularizers and constraints": "slow",
    "cosine similarity": "slow",
    "Adam": "slow",
    "gradient accumulation": "slow",
    "shapes of videos": "slow",
    "spectrograms of sound": "slow",
    "functions": "slow",
    "own layers": "slow",
    "preprocessing": "slow",
    "frozen weights": "slow",
}
CASES = [
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] if CHOSEN[case.name] == "slow" else [])
    for family in FAMILIES
    for case in family.cases
    if case.name in CHOSEN
]


def test_open_batch_cases_cover_every_family() -> None:
    assert all(set(CHOSEN) & {case.name for case in family.cases} for family in FAMILIES if family is not MODELS)


@pytest.mark.parametrize("case", CASES)
def test_open_batch_trains_like_keras(case: Case, twins: Any) -> None:
    keras.utils.set_random_seed(4)
    pair = twins(case.build(), case.loss(), case.optimizer(), batch_size=None)
    pair.agree(STEPS)
    for rows in (2, 5):
        x, _, _ = pair.batch(rows)
        found = pair.call("infer", x=x)["logits"]
        np.testing.assert_allclose(found, pair.model(x, training=False), rtol=1e-5, atol=1e-5)


def small() -> Any:
    keras.utils.set_random_seed(5)
    body = [layers.Dense(8, activation="relu", name="body"), layers.BatchNormalization(name="norm")]
    return keras.Sequential([layers.Input((6,)), *body, layers.Dense(3, name="classifier")], name="small")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, TrainableModel]:
    """A model with every optional signature, for any number of rows and for eight."""
    folder = tmp_path_factory.mktemp("rows")
    options: dict[str, Any] = {
        "train_groups": ["head"],
        "embed": True,
        "gradient_offset": True,
        "class_weight": {1: 2.0},
    }
    settings = {"loss": "sparse_categorical_crossentropy", "optimizer": "adam", **options}
    paths = {n: export_model(small(), folder / f"{n}.tflite", batch_size=n, **settings) for n in (None, 8)}
    return {rows: TrainableModel.load(path) for rows, path in paths.items()}


def test_open_batch_is_declared_in_the_file(files: dict[int | None, TrainableModel]) -> None:
    model = files[None]
    assert not model.fixed_batch
    assert (model.x.shape, model.y.shape, model.output.shape) == ((-1, 6), (-1,), (-1, 3))
    assert model.batch_size == DEFAULT_BATCH_SIZE
    assert set(model.signatures) == set(files[8].signatures)
    assert {t.name for t in model.signatures["head_train"].inputs.values() if t.shape[:1] == (-1,)} == {
        "embedding",
        "y",
        "sample_weight",
    }


def test_open_batch_computes_no_shapes(files: dict[int | None, TrainableModel]) -> None:
    for counts in files[None].operators.values():
        assert counts.get("SHAPE", 0) <= 1  # the number of rows, to divide by
        assert not {"BROADCAST_TO", "BROADCAST_ARGS", "RANGE", "FILL"} & set(counts)
        assert not [op for op in counts if op.startswith(("Flex", "CUSTOM"))]


def batch(rows: int) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(rows)
    x, y = random.normal(size=(rows, 6)).astype(np.float32), random.integers(0, 3, rows).astype(np.int32)
    return {"x": x, "y": y, "sample_weight": random.uniform(0.5, 1.5, rows).astype(np.float32)}


def test_open_batch_equals_a_fixed_batch_of_eight(files: dict[int | None, TrainableModel]) -> None:
    found, expected = (_used(Interpreter(model_content=files[n].content, num_threads=1)) for n in (None, 8))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def _used(interpreter: Interpreter) -> dict[str, NDArray[Any]]:
    """Return the outputs of one call of every signature."""
    given, rest = batch(8), {"learning_rate": np.float32(0.05), "mu": np.float32(0.1)}
    embedding = np.abs(np.random.default_rng(0).normal(size=(8, 8))).astype(np.float32)
    trainable = [(6, 8), (8,), (8,), (8,), (8, 3), (3,)]
    offsets = {f"b{i}": np.full(shape, 0.01 * i, np.float32) for i, shape in enumerate(trainable)}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("set_gradient_offset", offsets),
        ("train", {**given, **rest}),
        ("train_head", {**given, **rest}),
        ("embed", {"x": given["x"]}),
        ("head_train", {"embedding": embedding, "y": given["y"], "sample_weight": given["sample_weight"], **rest}),
        ("head_infer", {"embedding": embedding}),
        ("infer", {"x": given["x"]}),
        ("optimizer_state", {}),
        ("parameters", {}),
    ]
    outputs = {}
    for key, inputs in calls:
        outputs |= {f"{key}: {name}": value for name, value in interpreter.get_signature_runner(key)(**inputs).items()}
    return outputs
