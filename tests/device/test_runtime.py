"""Interpreters, and their pool, which does not change results."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel
from odt_sim.device.batches import Batch
from odt_sim.device.runtime import Runtime
from odt_sim.device.runtime_pool import STATE, ModelState, RuntimePool
from odt_sim.errors import ModelError

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]
DEVICES = 3


def test_written_weights_are_read_back(momentum: TrainableModel) -> None:
    runtime = Runtime(momentum)
    weights = runtime.initial * 3
    runtime.write(weights)
    np.testing.assert_array_equal(runtime.read().vector, weights.vector)
    slots = [np.full(slot.shape, i, np.float32) for i, slot in enumerate(momentum.slots)]
    runtime.write_slots(slots)
    for read, written in zip(runtime.read_slots(), slots, strict=True):
        np.testing.assert_array_equal(read, written)


def test_read_weights_do_not_change_by_training(momentum: TrainableModel) -> None:
    runtime = Runtime(momentum)
    weights, slots = runtime.read(), runtime.read_slots()
    x, y = np.ones((4, 6), np.float32), np.array([0, 1, 2, 0], np.int32)
    runtime.train([Batch(x, y, np.ones(4, np.float32), 4)], [0.1])
    np.testing.assert_array_equal(weights.vector, runtime.initial.vector)
    assert not any(slot.any() for slot in slots)
    assert all(slot.any() for slot in runtime.read_slots())


def test_weights_are_written_again_after_training(momentum: TrainableModel) -> None:
    runtime = Runtime(momentum)
    weights = runtime.read()
    for _ in range(2):
        runtime.write(weights)
        np.testing.assert_array_equal(runtime.call("parameters")["a0"], weights.tensors()[0])
        x, y = np.ones((4, 6), np.float32), np.array([0, 1, 2, 0], np.int32)
        runtime.train([Batch(x, y, np.ones(4, np.float32), 4)], [0.1])
        assert (runtime.call("parameters")["a0"] != weights.tensors()[0]).any()


def test_failed_call_is_one_line(momentum: TrainableModel) -> None:
    with pytest.raises(ModelError, match=r"signature 'infer' failed: .+") as caught:
        Runtime(momentum).call("infer", x=np.zeros((4, 6), np.int64))
    assert "\n" not in str(caught.value)


def test_unloadable_file_is_one_line(momentum: TrainableModel) -> None:
    with pytest.raises(ModelError, match=r"broken.tflite: LiteRT cannot load it: .+") as caught:
        Runtime(replace(momentum, content=b"TFL3" * 9, where="broken.tflite"))
    assert "\n" not in str(caught.value)


operations = st.lists(
    st.tuples(
        st.integers(0, DEVICES - 1),
        st.sampled_from(
            ["train", "train_batch", "train_step", "infer", "evaluate", "parameters", "give", "save", "load", "slots"]
        ),
    ),
    max_size=25,
)


def run(devices: list[Device], steps: list[tuple[int, str]], folder: Path) -> list[bytes]:
    """Run the operations and return the bytes of all results."""
    results: list[bytes] = []
    for index, operation in steps:
        device, right = devices[index], devices[(index + 1) % DEVICES]
        x, y = device.train_examples.take()
        if operation == "train":
            results.append(device.train(1, 0.1).tobytes())
        elif operation == "train_batch":
            results.append(np.float64(device.train_batch(x[:3], y[:3], 0.1)).tobytes())
        elif operation == "train_step":
            results += [np.float64(device.train_step(batch, 0.1)).tobytes() for batch in device.batches()]
        elif operation == "infer":
            results.append(device.infer(x).tobytes())
        elif operation == "evaluate":
            results.append(repr(device.evaluate("train")).encode())
        elif operation == "parameters":
            results.append(device.parameters().vector.tobytes())
        elif operation == "give":
            right.restore(device.parameters())
        elif operation == "save":
            device.save(folder / f"{index}")
        elif operation == "load" and (folder / f"{index}").exists():
            device.restore(folder / f"{index}")
        elif operation == "slots":
            right.restore_optimizer_state(device.optimizer_state())
    results += [array.tobytes() for d in devices for array in (d.parameters().vector, *d.optimizer_state())]
    return results


@given(operations)
@settings(max_examples=25)
def test_sharing_interpreters_changes_no_bit(
    momentum: TrainableModel, rows: Draw, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    def fleet(pools: list[RuntimePool]) -> list[Device]:
        return [Device(momentum, rows(momentum, 5 + i, i), id=i, pool=pool) for i, pool in enumerate(pools)]

    folder = tmp_path_factory.mktemp("own")
    own = run(fleet([RuntimePool(momentum) for _ in range(DEVICES)]), steps, folder)
    shared = RuntimePool(momentum)
    assert run(fleet([shared] * DEVICES), steps, tmp_path_factory.mktemp("shared")) == own


def states(pool: RuntimePool, count: int) -> list[ModelState]:
    return [ModelState(pool, pool.first.initial, pool.first.initial_slots) for _ in range(count)]


def test_devices_share_one_interpreter(momentum: TrainableModel) -> None:
    pool = RuntimePool(momentum)
    assert {state.runtime() for state in states(pool, 4) * 2} == {pool.first}


def test_released_interpreter_is_reused(momentum: TrainableModel) -> None:
    pool = RuntimePool(momentum)
    one, two = states(pool, 2)
    one.replace(pool.first.initial * 2, one.slots)
    runtime = one.runtime(changes=STATE)
    one.release()
    one.release()  # idempotent
    assert two.runtime() is runtime
    np.testing.assert_array_equal(runtime.read().vector, pool.first.initial.vector)
