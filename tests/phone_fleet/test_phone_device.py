"""Devices on phones, without a network: a function answers their requests."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from odt_sim import TrainableModel, TrainingPlan
from odt_sim.data.columns import Array
from odt_sim.errors import DataError
from odt_sim.phone.device import PhoneDevice
from odt_sim.phone.frames import Message
from odt_sim.phone.phones import Examples
from odt_sim.phone.runtime import PhonePool


def answer(header: Mapping[str, Any], tensors: Mapping[str, Array]) -> Message:
    return Message({"do": "done"}, {"losses": np.ones(len(tensors["sizes"]), np.float32)} if "sizes" in tensors else {})


def on_phone(pool: PhonePool, id: int) -> PhoneDevice:
    examples = Examples(40, 10, 10)
    return PhoneDevice(pool.model, examples, answer, pool, seed=0, id=id, round=1, plan=TrainingPlan())


def test_devices_share_one_interpreter(softmax: TrainableModel) -> None:
    pool = PhonePool(softmax)
    assert on_phone(pool, 0).initial is on_phone(pool, 1).initial is pool.first.initial


def test_calls_count_examples_without_padding(softmax: TrainableModel) -> None:
    device = on_phone(PhonePool(softmax), 0)
    assert device.train().tolist() == [1.0, 1.0, 1.0]
    assert (device.calls.train, device.calls.rows["train"]) == (3, 40)


def test_outputs_are_refused(softmax: TrainableModel) -> None:
    device = on_phone(PhonePool(softmax), 0)
    x = np.zeros((1, 8, 8, 1), np.float32)
    with pytest.raises(DataError, match="phones only train and evaluate; choose another strategy"):
        device.infer(x)
    with pytest.raises(DataError, match="phones only train and evaluate"):
        device.infer_batch(next(device.batches()))
    with pytest.raises(DataError, match="phones only train and evaluate"):
        device.call("infer", x=np.zeros((softmax.batch_size, 8, 8, 1), np.float32))
