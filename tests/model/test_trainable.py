"""Attributes of trainable models, and refused files."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ai_edge_litert import schema_py_generated as schema

from odt_sim import Device, TrainableModel
from odt_sim.errors import ModelError
from odt_sim.model.contract.manifest import METADATA_NAME
from odt_sim.model.editing.metadata import with_metadata
from odt_sim.model.reading.flatbuffer import fingerprint

Edit = Callable[[bytes, Callable[[Any], None]], bytes]


def test_exported_model_describes_itself(digits_cnn: TrainableModel) -> None:
    assert digits_cnn.name == "digits_cnn"
    assert digits_cnn.layout.size == 13706
    assert [(p.shape, p.role, p.group) for p in digits_cnn.parameters] == [
        ((3, 3, 1, 16), "trainable", "body"),
        ((16,), "trainable", "body"),
        ((3, 3, 16, 32), "trainable", "body"),
        ((32,), "trainable", "body"),
        ((128, 64), "trainable", "body"),
        ((64,), "trainable", "body"),
        ((64, 10), "trainable", "head"),
        ((10,), "trainable", "head"),
    ]
    assert digits_cnn.x.shape == (16, 8, 8, 1)
    assert digits_cnn.y.shape == (16,)
    assert digits_cnn.output.shape == (16, 10)
    assert (digits_cnn.batch_size, digits_cnn.fixed_batch, digits_cnn.classes) == (16, True, 10)
    assert (digits_cnn.loss, digits_cnn.from_logits) == ("sparse_categorical_crossentropy", True)
    assert digits_cnn.slots == ()
    assert not [op for ops in digits_cnn.operators.values() for op in ops if op.startswith("Flex")]


def test_capabilities(digits_cnn: TrainableModel, momentum: TrainableModel, foreign: Path) -> None:
    common = {"train", "infer", "parameters", "restore"}
    inputs = {"sample_weight", "learning_rate"}
    assert digits_cnn.capabilities == common | inputs | {"body", "head", "plain_sgd", "gradient_offset"}
    assert momentum.capabilities == common | inputs | {"body", "head", "optimizer_state", "restore_optimizer_state"}
    assert TrainableModel.load(foreign / "plain.tflite").capabilities == common | {"head", "train_head"}


def test_offset_capabilities(
    grouped: TrainableModel,
    grouped_without_offset: TrainableModel,
    adam: TrainableModel,
    adam_with_offset: TrainableModel,
) -> None:
    """An offset works in the graph, or on the host for plain SGD."""
    models = (grouped, grouped_without_offset, adam_with_offset, adam)
    assert ["gradient_offset" in model.capabilities for model in models] == [True, True, True, False]
    assert ["set_gradient_offset" in model.capabilities for model in models] == [True, False, True, False]


def test_trainable_and_moving_layouts(grouped: TrainableModel, frozen: TrainableModel) -> None:
    statistics = {"transfer/norm/moving_mean", "transfer/norm/moving_variance"}
    assert set(grouped.layout.names) - set(grouped.trainable_layout.names) == statistics
    assert all(p.moves for p in grouped.parameters)
    assert frozen.trainable_layout.names == ("transfer/classifier/kernel", "transfer/classifier/bias")
    assert frozen.layout.select(lambda p: p.moves) == frozen.trainable_layout


def test_slots_are_ordered(momentum: TrainableModel, adam: TrainableModel) -> None:
    assert [slot.name for slot in momentum.slots] == ["s0", "s1", "s2", "s3"]
    assert [slot.shape for slot in momentum.slots] == [p.shape for p in momentum.parameters]
    assert len(adam.slots) == 1 + 2 * len(adam.parameters)
    assert [slot.name for slot in adam.slots] == [f"s{i}" for i in range(9)]


def test_regression_has_no_classes(regression: TrainableModel) -> None:
    assert (regression.loss, regression.classes, regression.y.shape) == ("mean_squared_error", None, (4, 2))


def test_foreign_model_is_read(foreign: Path) -> None:
    model = TrainableModel.load(foreign / "plain.tflite")
    assert (model.loss, model.from_logits, model.classes) == ("sparse_categorical_crossentropy", True, 3)
    assert (model.name, model.random_states, model.fixed_batch) == ("plain", (), True)
    assert [(p.name, p.shape, p.role, p.group) for p in model.parameters] == [
        ("Variable_1", (6, 3), "trainable", "head"),
        ("Variable", (3,), "trainable", "head"),
    ]
    known = TrainableModel.load(foreign / "plain.tflite", loss="sparse_categorical_crossentropy", from_logits=False)
    assert (known.loss, known.classes, known.from_logits) == ("sparse_categorical_crossentropy", 3, False)
    losses = {"kl_divergence": 3, "categorical_crossentropy": 3, "binary_crossentropy": 2, "huber": None}
    assert {loss: TrainableModel.load(foreign / "plain.tflite", loss=loss).classes for loss in losses} == losses
    dynamic = TrainableModel.load(foreign / "dynamic.tflite")
    assert (dynamic.batch_size, dynamic.fixed_batch) == (32, False)


def test_pickles_as_bytes(foreign: Path, digits_cnn: TrainableModel) -> None:
    model = TrainableModel.load(foreign / "plain.tflite", loss="sparse_categorical_crossentropy", from_logits=False)
    again = pickle.loads(pickle.dumps(model))
    assert (again.content, again.where, again.loss, again.from_logits, again.layout) == (
        model.content,
        model.where,
        model.loss,
        False,
        model.layout,
    )
    assert len(pickle.dumps(digits_cnn)) < len(digits_cnn.content) + 1000
    assert pickle.loads(pickle.dumps(digits_cnn)).fingerprint == fingerprint(digits_cnn.content)


def test_representation_holds_no_bytes(digits_cnn: TrainableModel) -> None:
    text = repr(digits_cnn)
    assert digits_cnn.fingerprint in text
    assert len(text) < 400 + len(digits_cnn.where)


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none.tflite: cannot read the model \(No such file or directory\)"):
        TrainableModel.load(tmp_path / "none.tflite")
    with pytest.raises(ModelError, match=r"cannot read the model \(Is a directory\)"):
        TrainableModel.load(tmp_path)
    (tmp_path / "weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n" * 9)
    with pytest.raises(ModelError, match=r"weights.h5: not a .tflite file"):
        TrainableModel.load(tmp_path / "weights.h5")


def test_unknown_loss_is_refused(foreign: Path) -> None:
    with pytest.raises(ModelError, match="unknown loss 'hinge'; expected one of sparse_categorical"):
        TrainableModel.load(foreign / "plain.tflite", loss="hinge")


def test_damaged_manifest_is_refused(foreign: Path) -> None:
    content = with_metadata((foreign / "plain.tflite").read_bytes(), METADATA_NAME, b'{"format_version": 1')
    with pytest.raises(ModelError, match="its manifest is damaged"):
        TrainableModel.from_content(content)


def test_unknown_op_is_refused(foreign: Path, edited: Edit) -> None:
    def make_custom(model: Any) -> None:
        for code in model.operatorCodes:
            if code.builtinCode == schema.BuiltinOperator.LOG_SOFTMAX:
                code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
                code.customCode = "HomeMade"

    model = TrainableModel.from_content(
        edited((foreign / "plain.tflite").read_bytes(), make_custom), where="odd.tflite"
    )
    assert model.operators["train"]["HomeMade"] == 1
    device = Device(model, ([[0.0] * 6, [1.0] * 6], [0, 1]))
    with pytest.raises(ModelError, match=r"odd.tflite: signature 'train' failed: .*HomeMade") as caught:
        device.train()
    assert "\n" not in str(caught.value)
