"""A device loads and trains every dialect under canonical names, on real LiteRT."""

from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from dialects import BUILTIN, FLEX, FOUR, Dialect, generated
from odt_sim import Device, TrainableModel, Weights
from odt_sim.device.runtime import Runtime
from odt_sim.errors import ModelError

LOSSES = {
    "one_hot": "categorical_crossentropy",
    "sparse": "sparse_categorical_crossentropy",
    "sparse_float": "sparse_categorical_crossentropy",
    "values": "mean_squared_error",
}
LOADED = sorted({*BUILTIN, "load_embeds"})
"""The files whose step runs on bare LiteRT, even if `save` and `restore` do not."""


def examples(dialect: Dialect, rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return examples as in a data set: for `load_embeds`, the inputs from which features are computed."""
    x, y = dialect.batch()
    x, y = (np.concatenate([dialect.batch(seed)[i] for seed in range(-(-rows // len(x)))])[:rows] for i in (0, 1))
    if dialect.path.stem == "load_embeds":
        x = np.random.default_rng(0).normal(size=(rows, 6)).astype(np.float32)
    return x, y.astype(np.int32) if dialect.labels == "sparse_float" else y


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADED)
def test_losses_fall_on_a_device(name: str) -> None:
    dialect = generated(name)
    model = TrainableModel.load(dialect.path)
    assert model.loss == LOSSES[dialect.labels]
    x, y = examples(dialect, 12)
    device = Device(model, (x, y), test=(x, y))
    if name == "not_a_number":
        device.restore(Weights(model.layout, np.nan_to_num(device.initial.vector)))
    before = device.evaluate("test")["loss"]
    losses = device.train(epochs=20)
    assert np.isfinite(losses).all()
    assert device.evaluate("test")["loss"] < 0.95 * before


@pytest.mark.parametrize("name", sorted({*BUILTIN} - {"not_a_number"}))
def test_steps_equal_those_of_the_file_itself(name: str) -> None:
    """The same batches give the same losses as under the file's own names, from the shipped weights."""
    dialect = generated(name)
    own = dialect.signatures["train"]
    step = Interpreter(model_content=dialect.content, num_threads=1).get_signature_runner(own["name"])
    model = TrainableModel.load(dialect.path)
    runtime = Runtime(model)
    runtime.write(runtime.initial)
    for seed in range(5):
        x, y = dialect.batch(seed)
        expected = float(step(**{own["x"]: x, own["y"]: y})[own["loss"]])
        assert float(runtime.call("train", x=x, y=y)["loss"]) == expected


@pytest.mark.parametrize("name", LOADED)
def test_weights_have_the_authors_names_and_order(name: str) -> None:
    dialect = generated(name)
    model = TrainableModel.load(dialect.path)
    assert set(model.layout.names) <= set(dialect.weights)
    assert list(model.layout.names) == [name for name in dialect.weights if name in model.layout.names]
    assert {p.name for p in model.parameters if p.group == "head"} == {"classifier/kernel", "classifier/bias"}


@pytest.mark.parametrize("name", LOADED)
def test_weights_and_slots_are_read_back_as_written(name: str) -> None:
    model = TrainableModel.load(generated(name).path)
    runtime = Runtime(model)
    random = np.random.default_rng(0)
    weights = Weights(model.layout, random.normal(size=model.layout.size).astype(np.float32))
    slots = [random.normal(size=slot.shape).astype(slot.dtype) for slot in model.slots]
    runtime.write(weights)
    runtime.write_slots(slots)
    for found, expected in zip(runtime.call("parameters").values(), weights.tensors(), strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(runtime.read_slots(), slots, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_momentum_without_signatures_becomes_a_slot() -> None:
    model = TrainableModel.load(generated("closed_momentum").path)
    assert [(slot.name, slot.shape) for slot in model.slots] == [("s0", (5, 3))]


@pytest.mark.parametrize("name", sorted({*FLEX} - {"load_embeds"}))
def test_flex_file_is_refused_with_the_command_that_frees_it(name: str) -> None:
    with pytest.raises(ModelError, match=r"'train' contains Flex ops \(FlexReluGrad\) .*rewrite it: odt-sim deflex"):
        TrainableModel.load(generated(name).path)


@pytest.mark.parametrize("name", FLEX)
def test_flex_file_is_adapted_for_a_runtime_that_runs_it(name: str) -> None:
    model = TrainableModel.load(generated(name).path, flex=True)
    assert {"train", "infer", "parameters", "restore"} <= model.signatures.keys()


@pytest.mark.parametrize("name", FOUR)
def test_file_without_signatures_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="inference only: it has no variables; export a training step"):
        TrainableModel.load(generated(name).path)
