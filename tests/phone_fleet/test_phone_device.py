"""Devices on phones, without a network: a function answers their requests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, TrainableModel, TrainingPlan, Weights
from odt_sim.data.store.columns import Array
from odt_sim.errors import DataError, ModelError
from odt_sim.phone.device import PhonePool, phone_device
from odt_sim.phone.frames import Message
from odt_sim.phone.phones import Examples


def answer(header: Mapping[str, Any], tensors: Mapping[str, Array]) -> Message:
    if header["do"] == "read":
        return Message({"do": "done"}, {"weights": np.full(650, 3, np.float32)})
    return Message({"do": "done"}, {"losses": np.ones(len(tensors["sizes"]), np.float32)} if "sizes" in tensors else {})


def on_phone(pool: PhonePool, id: int) -> Device:
    return phone_device(Examples(40, 10, 10), answer, pool, seed=0, id=id, round=1, plan=TrainingPlan())


def test_devices_share_one_interpreter(softmax: TrainableModel) -> None:
    pool = PhonePool(softmax)
    assert on_phone(pool, 0).initial is on_phone(pool, 1).initial is pool.pool.first.initial


def test_calls_count_examples_without_padding(softmax: TrainableModel) -> None:
    device = on_phone(PhonePool(softmax), 0)
    assert device.train().tolist() == [1.0, 1.0, 1.0]
    assert (device.calls.train, device.calls.rows["train"]) == (3, 40)


def test_change_is_that_of_the_phone(softmax: TrainableModel) -> None:
    """The interpreter here, which devices share in several threads, has weights of none of them."""
    pool = PhonePool(softmax)
    device, before = on_phone(pool, 0), Weights(softmax.layout, np.ones(650, np.float32))
    device.restore(before)
    device.train()
    del pool.pool.first  # any use would start another one
    np.testing.assert_array_equal(device.change_since(before).vector, np.full(650, 2, np.float32))
    assert "first" not in vars(pool.pool)


def test_state_that_evaluation_changes_is_read(sampling: TrainableModel) -> None:
    def answer(header: Mapping[str, Any], tensors: Mapping[str, Array]) -> Message:
        if header["do"] == "evaluate":
            return Message({"figures": {"loss": 1.0}, "calls": 1}, {})
        slots = {f"s{i}": np.full(slot.shape, 7, slot.dtype) for i, slot in enumerate(sampling.slots)}
        return Message({}, {"weights": np.zeros(sampling.layout.size, np.float32), **slots})

    pool = PhonePool(sampling)
    device = phone_device(Examples(4, 4, 4), answer, pool, seed=0, id=0, round=1, plan=TrainingPlan())
    before = device.optimizer_state()
    device.loss("validation")
    [state] = sampling.random_states
    assert before[state].tolist() != device.optimizer_state()[state].tolist() == [7, 7]


def test_file_without_a_learning_rate_trains(foreign: Path) -> None:
    device = on_phone(PhonePool(TrainableModel.load(foreign / "plain.tflite")), 0)
    assert device.train(1).size
    with pytest.raises(ModelError, match="has a fixed step size"):
        device.train(learning_rate=0.1)


def test_outputs_are_refused(softmax: TrainableModel) -> None:
    device = on_phone(PhonePool(softmax), 0)
    x = np.zeros((1, 8, 8, 1), np.float32)
    with pytest.raises(DataError, match="phones only train and evaluate; choose another strategy"):
        device.infer(x)
    with pytest.raises(DataError, match="phones only train and evaluate"):
        device.infer_batch(next(device.batches()))
    with pytest.raises(DataError, match="phones only train and evaluate"):
        device.call("infer", x=np.zeros((softmax.batch_size, 8, 8, 1), np.float32))
