"""Real files with one change that breaks the signature contract, and their errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ai_edge_litert import schema_py_generated as schema
from edits import drop, rename, reshape, retype, signature, tensor

from odt_sim import TrainableModel
from odt_sim.errors import ModelError
from odt_sim.model.contract.signatures import ordered
from odt_sim.model.reading.flatbuffer import TensorInfo

Edit = Callable[[bytes, Callable[[Any], None]], bytes]


def no_signatures(model: Any) -> None:
    model.signatureDefs = []


def two_outputs(model: Any) -> None:
    outputs = signature(model, "infer").outputs
    more = schema.TensorMapT()
    more.name, more.tensorIndex = "more", outputs[0].tensorIndex
    outputs.append(more)


def test_unchanged_file_is_valid(foreign: Path, edited: Edit) -> None:
    content = edited((foreign / "plain.tflite").read_bytes(), lambda model: None)
    assert set(TrainableModel.from_content(content).signatures) == {"train", "infer", "parameters", "restore"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_signatures, "no signature 'train', found none; it is not trainable, export it with odt_sim.export"),
        (drop("train"), "no signature 'train', found infer, parameters, restore"),
        (drop("infer"), "no signature 'infer'"),
        (drop("parameters"), "no signature 'parameters'"),
        (drop("restore"), "no signature 'restore'"),
        (rename("train", "inputs", "x", "image"), "signature 'train' has no input 'x', found image, y"),
        (rename("train", "inputs", "y", "label"), "signature 'train' has no input 'y', found x, label"),
        (rename("infer", "inputs", "x", "image"), "signature 'infer' has no input 'x', found image"),
        (retype("train", "inputs", "x", schema.TensorType.STRING), r"input 'x' of 'train' is string \[4, 6\]"),
        (retype("infer", "inputs", "x", schema.TensorType.RESOURCE), r"input 'x' of 'infer' is resource \[4, 6\]"),
        (
            reshape("train", "inputs", "y", []),
            r"input 'y' of 'train' is int32 \[\]; expected numbers with the batch as the first axis",
        ),
        (rename("train", "outputs", "loss", "cost"), r"no output 'loss', a float32 number, found cost float32 \[\]"),
        (
            reshape("train", "outputs", "loss", [4]),
            r"a float32 number, found loss float32 \[4\]; return the batch's mean",
        ),
        (two_outputs, "'infer' should have an output 'logits' or a single output, found scores, more"),
        (rename("parameters", "outputs", "a1", "bias"), r"expected the weights as a0\.\.a1, found 'bias'"),
        (rename("restore", "inputs", "a1", "a2"), "inputs of 'restore' differ from the outputs of 'parameters'"),
        (reshape("restore", "inputs", "a0", [3, 6]), "inputs of 'restore' differ from the outputs of 'parameters'"),
        (
            retype("parameters", "outputs", "a0", schema.TensorType.FLOAT16),
            r"parameter a0 is float16 \[6, 3\]; expected",
        ),
        (
            reshape("parameters", "outputs", "a0", [6, -1]),
            r"parameter a0 is float32 \[6, -1\]; expected float32 of a fixed",
        ),
    ],
)
def test_broken_contract_is_one_line(foreign: Path, edited: Edit, change: Any, message: str) -> None:
    content = edited((foreign / "plain.tflite").read_bytes(), change)
    with pytest.raises(ModelError, match=message) as caught:
        TrainableModel.from_content(content, where="model.tflite")
    assert str(caught.value).startswith("model.tflite: ")
    assert "\n" not in str(caught.value)


def test_unknown_input_of_train_is_refused(foreign: Path, edited: Edit) -> None:
    content = edited(
        (foreign / "dynamic.tflite").read_bytes(), rename("train", "inputs", "learning_rate", "temperature")
    )
    with pytest.raises(
        ModelError, match="'train' has an unknown input 'temperature'; expected only x, y, sample_weight"
    ):
        TrainableModel.from_content(content)


def test_unknown_input_of_infer_is_refused(foreign: Path, edited: Edit) -> None:
    def add(model: Any) -> None:
        more = schema.TensorMapT()
        more.name, more.tensorIndex = "mask", signature(model, "infer").inputs[0].tensorIndex
        signature(model, "infer").inputs.append(more)

    with pytest.raises(ModelError, match="'infer' has an unknown input 'mask'; expected only x"):
        TrainableModel.from_content(edited((foreign / "plain.tflite").read_bytes(), add))


def test_flex_ops_are_named(foreign: Path) -> None:
    with pytest.raises(
        ModelError, match=r"flex.tflite: 'train' contains Flex ops \(FlexSoftplusGrad\) .*odt-sim deflex"
    ):
        TrainableModel.load(foreign / "flex.tflite")


@pytest.mark.parametrize(
    "change", [drop("restore_optimizer_state"), rename("restore_optimizer_state", "inputs", "s0", "t0")]
)
def test_unrestorable_optimizer_is_refused(momentum: TrainableModel, edited: Edit, change: Any) -> None:
    with pytest.raises(ModelError, match="'restore_optimizer_state' differ from the outputs of 'optimizer_state'"):
        TrainableModel.from_content(edited(momentum.content, change))


@pytest.mark.parametrize("name", ["hidden", "hidden_branch", "hidden_loop"])
def test_momentum_that_no_signature_sets_is_refused(foreign: Path, name: str) -> None:
    message = rf"{name}: 'train' changes the variable \S+, which neither .* sets, so all devices would share it"
    with pytest.raises(ModelError, match=message) as caught:
        TrainableModel.from_content((foreign / f"{name}.tflite").read_bytes(), where=name)
    assert "\n" not in str(caught.value)


def test_unread_variable_is_accepted(foreign: Path) -> None:
    assert "train" in TrainableModel.load(foreign / "write_only.tflite").signatures


def test_manifest_with_other_shapes_is_refused(softmax: TrainableModel, edited: Edit) -> None:
    def transpose(model: Any) -> None:
        for key, side in (("parameters", "outputs"), ("restore", "inputs")):
            tensor(model, key, side, "a0").shape = [10, 64]

    with pytest.raises(ModelError, match="the manifest's shapes differ from the signature 'parameters'"):
        TrainableModel.from_content(edited(softmax.content, transpose))


def test_parameters_are_ordered_by_number() -> None:
    shuffled = [TensorInfo(f"a{i}", (), "float32") for i in (10, 2, 0, 1, 9, 3, 8, 4, 7, 5, 6)]
    assert [t.name for t in ordered(shuffled, "a", "model")] == [f"a{i}" for i in range(11)]
    with pytest.raises(ModelError, match=r"expected the weights as a0\.\.a1, found 'a0'"):
        ordered([TensorInfo(name, (), "float32") for name in ("a0", "a2")], "a", "model")


def drop_initializers(model: Any) -> None:
    """Drop the initializers, as some exporters do for Keras variables: LiteRT would read arbitrary memory."""
    once = [i for i, c in enumerate(model.operatorCodes) if c.builtinCode == schema.BuiltinOperator.CALL_ONCE]
    for subgraph in model.subgraphs:
        subgraph.operators = [op for op in subgraph.operators if op.opcodeIndex not in once]


def drop_one_initial_value(model: Any) -> None:
    called = {s.subgraphIndex for s in model.signatureDefs}
    assigns = [i for i, c in enumerate(model.operatorCodes) if c.builtinCode == schema.BuiltinOperator.ASSIGN_VARIABLE]
    for initializer in (s for i, s in enumerate(model.subgraphs) if i not in called):
        last = [op for op in initializer.operators if op.opcodeIndex in assigns][-1]
        initializer.operators.remove(last)


@pytest.mark.parametrize(("change", "count"), [(drop_initializers, 2), (drop_one_initial_value, 1)])
def test_variables_without_initial_values_are_refused(foreign: Path, edited: Edit, change: Any, count: int) -> None:
    content = edited((foreign / "plain.tflite").read_bytes(), change)
    with pytest.raises(
        ModelError, match=rf"bare.tflite: {count} of its variables have no initial values, the first is .+; export"
    ):
        TrainableModel.from_content(content, where="bare.tflite")
