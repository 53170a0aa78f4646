"""Dropout masks depend only on the seed, the device and the round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, TrainableModel
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.strategies.state import keep_optimizer, recall_optimizer

X = np.arange(12).reshape(3, 4) % 10
Y = np.array([0, 1, 2])


def losses(model: TrainableModel, **place: Any) -> Sequence[float]:
    """Return the losses of two steps on one batch, which differ only in masks."""
    device = Device(model, (X, Y), **place)
    return [device.train_batch(X, Y, 1e-6) for _ in range(2)]


def test_masks_repeat_for_equal_seed_device_and_round(dropout: TrainableModel) -> None:
    pool = RuntimePool(dropout)
    first = losses(dropout, seed=1, id=2, round=3)
    losses(dropout, seed=5, id=5, round=5, pool=pool)
    assert losses(dropout, seed=1, id=2, round=3, pool=pool) == first
    assert first[0] != first[1]


@pytest.mark.parametrize("other", [{"seed": 9}, {"id": 9}, {"round": 9}])
def test_masks_differ_otherwise(dropout: TrainableModel, other: dict[str, int]) -> None:
    place = {"seed": 1, "id": 2, "round": 3}
    assert losses(dropout, **place) != losses(dropout, **{**place, **other})


def test_kept_optimizer_state_keeps_fresh_masks(dropout: TrainableModel) -> None:
    before, after = Device(dropout, (X, Y), round=1), Device(dropout, (X, Y), round=2)
    fresh = after.optimizer_state()
    before.train()
    keep_optimizer(before)
    after.state = before.state
    recall_optimizer(after)
    for slot, own in zip(fresh, after.optimizer_state(), strict=True):
        np.testing.assert_array_equal(slot, own)
