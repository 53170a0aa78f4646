"""`save` and `restore` of the Flex flavour: files in TensorFlow's checkpoint format."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from flex_model import FlexModel, batches, small_cnn

from odt_sim.model.contract.manifest import METADATA_NAME, Manifest
from odt_sim.model.reading.flatbuffer import read

Tensors = dict[str, Any]
BIAS = "cnn/classifier/bias"


def losses(model: FlexModel) -> list[float]:
    return [float(model.train(batch)["loss"]) for batch in batches(small_cnn(), 2, seed=8)]


def tensors_of(path: Path) -> Tensors:
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_restored_model_continues_bit_for_bit(trained: FlexModel, cnn: Path, tmp_path: Path) -> None:
    said = trained.save(tmp_path / "checkpoint")
    assert said["checkpoint_path"] == str(tmp_path / "checkpoint").encode()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    saved, further = trained.parameters(), losses(trained)
    assert not np.array_equal(trained.parameters()[0], saved[0])
    fresh = FlexModel(cnn)
    for model in (trained, fresh):
        model.restore(tmp_path / "checkpoint")
        for found, expected in zip(model.parameters(), saved, strict=True):
            np.testing.assert_array_equal(found, expected)
        assert losses(model) == further  # optimizer slots and masks are restored, too


def test_tensorflow_reads_parameters_by_manifest_names(trained: FlexModel, cnn: Path, tmp_path: Path) -> None:
    trained.save(tmp_path / "checkpoint")
    manifest = Manifest.from_json(read(cnn.read_bytes(), "cnn").metadata[METADATA_NAME], "cnn")
    tensors = tensors_of(tmp_path / "checkpoint")
    for parameter, value in zip(manifest.parameters, trained.parameters(), strict=True):
        np.testing.assert_array_equal(tensors[parameter.name], value)
    assert tensors["optimizer/iteration"] == 3


def test_tensorflow_checkpoint_is_restored(trained: FlexModel, cnn: Path, tmp_path: Path) -> None:
    trained.save(tmp_path / "checkpoint")
    tensors = tensors_of(tmp_path / "checkpoint") | {BIAS: np.float32([1, 2, 3])}
    prefix = str(tmp_path / "second")  # the current format, in two files
    data = [tf.constant(value) for value in tensors.values()]
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=list(tensors), shape_and_slices=[""] * len(data), tensors=data)
    fresh = FlexModel(cnn)
    restored = fresh.restore(tmp_path / "second")
    assert restored.keys() == tensors.keys()
    np.testing.assert_array_equal(restored[BIAS], [1, 2, 3])
    np.testing.assert_array_equal(fresh.parameters()[-1], [1, 2, 3])
    np.testing.assert_array_equal(fresh.parameters()[0], trained.parameters()[0])


BAD: list[tuple[Callable[[Tensors], Tensors], str]] = [
    (lambda tensors: {k: v for k, v in tensors.items() if k != BIAS}, f'Tensor name "{BIAS}" not found in checkpoint'),
    (lambda tensors: tensors | {BIAS: np.zeros(4, np.float32)}, r"\[4\] is not compatible with expected shape \[3\]"),
    (
        lambda tensors: tensors | {BIAS: np.zeros(3, np.int32)},
        "Expected to restore a tensor of type float, got .*int32",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_mismatched_checkpoint_changes_nothing(
    change: Callable[[Tensors], Tensors], message: str, trained: FlexModel, cnn: Path, tmp_path: Path
) -> None:
    trained.save(tmp_path / "checkpoint")
    changed = change(tensors_of(tmp_path / "checkpoint"))
    tf.raw_ops.Save(filename=str(tmp_path / "bad"), tensor_names=list(changed), data=list(changed.values()))
    fresh = FlexModel(cnn)
    with pytest.raises(RuntimeError, match=message):
        fresh.restore(tmp_path / "bad")
    for found, expected in zip(fresh.parameters(), small_cnn().get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    fresh.restore(tmp_path / "checkpoint")
    assert losses(fresh) == losses(trained)


def test_missing_checkpoint_is_an_error_and_changes_nothing(trained: FlexModel, tmp_path: Path) -> None:
    before = trained.parameters()
    with pytest.raises(RuntimeError, match=f"Failed to find any matching files for {tmp_path}/none"):
        trained.restore(tmp_path / "none")
    for found, expected in zip(trained.parameters(), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(RuntimeError, match="No such file or directory"):
        trained.save(tmp_path / "none" / "checkpoint")
