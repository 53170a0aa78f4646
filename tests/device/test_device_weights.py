"""Reading, setting, saving and restoring a device's weights and optimizer slots."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from odt_sim import Device, TrainableModel, Weights
from odt_sim.device.checkpoint import write_tensors
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.errors import CheckpointError, ConfigurationError, FileError, ModelError
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.weights import Layout

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]
RATE = 0.1


@pytest.fixture(params=["momentum", "adam"])
def stateful(request: pytest.FixtureRequest) -> TrainableModel:
    """A model whose optimizer has slots."""
    return request.getfixturevalue(request.param)


def state(device: Device) -> list[NDArray[Any]]:
    return [device.parameters().vector, *device.optimizer_state()]


def assert_equal(one: Device, other: Device) -> None:
    for own, its in zip(state(one), state(other), strict=True):
        np.testing.assert_array_equal(own, its)


def test_restored_weights_are_used(softmax: TrainableModel, rows: Draw) -> None:
    x, y = rows(softmax, 20)
    device = Device(softmax, (x, y))
    weights = Weights(softmax.layout, np.random.default_rng(0).normal(size=650).astype(np.float32))
    device.restore(weights)
    np.testing.assert_array_equal(device.parameters().vector, weights.vector)
    kernel, bias = weights.tensors()
    np.testing.assert_allclose(device.infer(x), x.reshape(20, 64) @ kernel + bias, rtol=0, atol=1e-5)
    device.train(1, RATE)
    assert not np.array_equal(device.parameters().vector, weights.vector)


def test_change_is_the_difference_of_weights(grouped: TrainableModel, rows: Draw) -> None:
    pool = RuntimePool(grouped)  # shared: a device that loses the interpreter keeps its weights
    first, second = (Device(grouped, rows(grouped, 20, seed), pool=pool) for seed in (0, 1))
    head = grouped.layout.select(lambda p: p.group == "head")
    for device, group in ((first, None), (second, "head"), (first, "head"), (second, None)):
        before = device.parameters()
        device.train(1, RATE, group=group)
        for layout in (grouped.layout, head):
            expected = device.parameters(layout) if device is first else None  # the host has no copy before the second
            change = device.change_since(before.select(layout))
            expected = device.parameters(layout) if expected is None else expected
            assert change.layout == layout
            assert change.vector.any()
            np.testing.assert_array_equal(change.vector, (expected - before.select(layout)).vector)
    with pytest.raises(ModelError, match="no parameter 'other'"):
        first.change_since(Weights.zeros(Layout((Parameter("other", (2,), "head", "trainable"),))))


@pytest.mark.parametrize("make", [lambda weights: weights.tensors(), lambda weights: weights.vector])
def test_arrays_in_place_of_weights_are_refused(softmax: TrainableModel, rows: Draw, make: Callable[..., Any]) -> None:
    device = Device(softmax, rows(softmax, 2))
    with pytest.raises(
        ConfigurationError, match=r"expected Weights or the path of a checkpoint, found .*\.from_tensors"
    ):
        device.restore(make(device.weights))


def test_weights_are_current_and_read_only(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 20))
    before = device.weights
    np.testing.assert_array_equal(before.vector, device.parameters().vector)
    device.train(1, RATE)
    trained, after = device.weights, device.parameters()
    np.testing.assert_array_equal(trained.vector, after.vector)
    assert not np.array_equal(trained.vector, before.vector)
    for weights in (before, trained, device.initial):
        with pytest.raises(ValueError, match="read-only"):
            weights.vector[:] = 0
    device.restore(before)
    assert device.weights is before  # read-only weights need no copy


def test_parameters_are_copies(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 20))
    given = device.parameters()
    device.restore(given)
    expected = given.vector.copy()
    given.vector[:] = 0
    device.parameters().vector[:] = 1
    np.testing.assert_array_equal(device.parameters().vector, expected)
    kept = device.parameters()
    device.train(1, RATE)
    np.testing.assert_array_equal(kept.vector, expected)
    np.testing.assert_array_equal(Device(softmax, rows(softmax, 1)).parameters().vector, expected)


def test_slots_are_copies(stateful: TrainableModel, rows: Draw) -> None:
    device, twin = (Device(stateful, rows(stateful, 10)) for _ in range(2))
    for slot in device.optimizer_state():
        slot[...] = 7
    device.train(1, RATE)
    twin.train(1, RATE)
    assert_equal(device, twin)
    slots = device.optimizer_state()
    device.restore_optimizer_state(slots)
    for slot in slots:
        slot[...] = 7
    assert_equal(device, twin)


@pytest.mark.parametrize("name", ["sampling", "counting"])
def test_state_that_inference_changes_is_saved(
    request: pytest.FixtureRequest, rows: Draw, tmp_path: Path, name: str
) -> None:
    model, path = request.getfixturevalue(name), tmp_path / "device"
    pool, examples = RuntimePool(model), rows(model, 8)
    device, restored = (Device(model, examples, test=examples, pool=pool) for _ in range(2))
    device.train(1, RATE)
    before = state(device)
    device.infer(examples[0])
    device.evaluate()
    device.save(path)
    assert any(not np.array_equal(*pair) for pair in zip(before, state(device), strict=True))
    restored.restore(path)
    losses = restored.train(1, RATE)
    np.testing.assert_array_equal(device.train(1, RATE), losses)  # the shared interpreter held another state meanwhile
    assert_equal(device, restored)


def test_partial_restore_keeps_the_rest(momentum: TrainableModel, rows: Draw) -> None:
    device = Device(momentum, rows(momentum, 10))
    device.train(1, RATE)
    before, slots = device.parameters(), device.optimizer_state()
    head = momentum.layout.select(lambda p: p.group == "head")
    body = momentum.layout.select(lambda p: p.group == "body")
    device.restore(Weights(head, np.full(head.size, 0.5, np.float32)))
    assert (device.parameters().select(head).vector == 0.5).all()
    np.testing.assert_array_equal(device.parameters().select(body).vector, before.select(body).vector)
    for now, then in zip(device.optimizer_state(), slots, strict=True):
        np.testing.assert_array_equal(now, then)
        assert now.any()


def test_weights_of_another_model_are_refused(softmax: TrainableModel, digits_mlp: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 2))
    before = device.parameters().vector
    with pytest.raises(ModelError, match="no parameter 'mlp/dense_0/kernel'; expected one of softmax_regression/"):
        device.restore(Device(digits_mlp, rows(digits_mlp, 2)).parameters())
    name = softmax.layout.names[0]
    other_shape = Layout((Parameter(name, (64, 20)),))
    with pytest.raises(ModelError, match=rf"{name}: expected \[64, 10\], found \[64, 20\]"):
        device.restore(Weights.zeros(other_shape))
    np.testing.assert_array_equal(device.parameters().vector, before)


def test_wrong_slots_are_refused(momentum: TrainableModel, softmax: TrainableModel, rows: Draw) -> None:
    device = Device(momentum, rows(momentum, 2))
    slots = device.optimizer_state()
    for wrong in (slots[:-1], [*slots, slots[0]], [slot.astype(np.float64) for slot in slots], slots[::-1]):
        with pytest.raises(ModelError, match="expected the optimizer's slots"):
            device.restore_optimizer_state(wrong)
    plain = Device(softmax, rows(softmax, 2))
    assert plain.optimizer_state() == []
    plain.restore_optimizer_state([])


# --- checkpoints ---------------------------------------------------------------------------------------------------


def test_restored_device_continues_identically(stateful: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    data = rows(stateful, 10)
    uninterrupted = Device(stateful, data, seed=1, id=2, round=3)
    first = uninterrupted.train(2, RATE)
    uninterrupted.save(tmp_path / "d.safetensors")
    second = uninterrupted.train(2, RATE)

    fresh = Device(stateful, data, seed=1, id=2, round=3)
    fresh.restore(tmp_path / "d.safetensors")
    np.testing.assert_array_equal(fresh.train(2, RATE), second)
    assert_equal(fresh, uninterrupted)

    uninterrupted.restore(str(tmp_path / "d.safetensors"))
    np.testing.assert_array_equal(uninterrupted.train(2, RATE), second)
    assert not np.array_equal(first, second)


def test_save_and_restore_round_trip(stateful: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    device = Device(stateful, rows(stateful, 10))
    device.train(1, RATE)
    device.save(tmp_path / "a")
    other = Device(stateful, rows(stateful, 10))
    other.restore(tmp_path / "a")
    assert_equal(device, other)
    other.save(tmp_path / "b")
    third = Device(stateful, rows(stateful, 10))
    third.restore(tmp_path / "b")
    assert_equal(device, third)


def test_checkpoint_of_another_model_is_refused(
    softmax: TrainableModel, momentum: TrainableModel, rows: Draw, tmp_path: Path
) -> None:
    Device(momentum, rows(momentum, 2)).save(tmp_path / "m")
    device = Device(softmax, rows(softmax, 2))
    with pytest.raises(
        CheckpointError, match=r"/m: belongs to a different model than .*tflite; use a checkpoint of this model"
    ):
        device.restore(tmp_path / "m")


def test_other_file_of_the_model_is_refused(softmax: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    write_tensors(tmp_path / "server", {"weights": np.zeros(650)}, {"fingerprint": softmax.fingerprint})
    with pytest.raises(
        CheckpointError, match=r"server: is not a device checkpoint; use a file written by `Device.save`"
    ):
        Device(softmax, rows(softmax, 2)).restore(tmp_path / "server")


def test_file_of_weights_alone_keeps_the_slots(momentum: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    device = Device(momentum, rows(momentum, 4))
    device.train(epochs=1)
    slots, other = device.optimizer_state(), 2 * device.parameters()
    tensors = dict(zip(momentum.layout.names, other.tensors(), strict=True))
    save_file(tensors, tmp_path / "w.safetensors")
    device.restore(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(device.parameters().vector, other.vector)
    for found, expected in zip(device.optimizer_state(), slots, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_file_of_another_models_weights_is_refused(softmax: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    save_file({"kernel": np.zeros(3, np.float32)}, tmp_path / "w.safetensors")
    expected = (
        r"w\.safetensors: belongs to a different model than .+: expected .+, found kernel; use weights of this model"
    )
    with pytest.raises(CheckpointError, match=expected):
        Device(softmax, rows(softmax, 2)).restore(tmp_path / "w.safetensors")


def test_weights_of_another_version_of_the_model_are_refused(
    softmax: TrainableModel, rows: Draw, tmp_path: Path
) -> None:
    device = Device(softmax, rows(softmax, 2))
    weights = 2 * device.parameters()
    tensors = dict(zip(softmax.layout.names, weights.tensors(), strict=True))
    save_file(tensors, tmp_path / "w.safetensors", {"fingerprint": "0123456789abcdef"})
    expected = (
        rf"w\.safetensors: has the weights of a model file with fingerprint 0123456789ab, expected "
        rf"{softmax.fingerprint[:12]} of .+; restore them with that file, and if they mean the same here, pass on device"
    )
    with pytest.raises(CheckpointError, match=expected):
        device.restore(tmp_path / "w.safetensors")
    save_file(tensors, tmp_path / "w.safetensors", {"fingerprint": softmax.fingerprint, "format": "np"})
    device.restore(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(device.parameters().vector, weights.vector)


def test_file_of_weights_that_numpy_has_no_type_for_is_refused(
    softmax: TrainableModel, rows: Draw, tmp_path: Path
) -> None:
    header = json.dumps({"kernel": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(CheckpointError, match=r"w\.safetensors: damaged or not a checkpoint"):
        Device(softmax, rows(softmax, 2)).restore(tmp_path / "w.safetensors")


def test_damaged_checkpoint_leaves_the_device_unchanged(momentum: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    device = Device(momentum, rows(momentum, 10))
    path = tmp_path / "d.safetensors"
    device.save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    device.train(1, RATE)
    before = state(device)
    with pytest.raises(CheckpointError, match="damaged"):
        device.restore(path)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        device.restore(tmp_path / "none")
    for now, then in zip(state(device), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_unwritable_checkpoint_is_an_error(softmax: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write it"):
        Device(softmax, rows(softmax, 2)).save(tmp_path / "file" / "d.safetensors")


def test_device_is_not_pickled(momentum: TrainableModel) -> None:
    with pytest.raises(
        TypeError, match="a Device cannot be pickled, since it owns an interpreter; create it in the process"
    ):
        pickle.dumps(Device(momentum, (np.zeros((4, 6), np.float32), np.zeros(4, np.int32))))
