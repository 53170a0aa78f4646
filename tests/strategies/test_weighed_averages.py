"""FedNova, q-FFL and head-only training against plain numpy."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from odt_sim import Device, TrainableModel, Weights
from odt_sim.strategies.averaging.fednova import FedNova
from odt_sim.strategies.averaging.qffl import QFFL
from odt_sim.strategies.shared_parts.head_only import HeadOnly

RATE = 0.1  # as in the runs, see conftest


def test_fednova(twin: Any) -> None:
    """20, 33 and 7 examples in batches of 16 are 2, 3 and 1 steps an epoch."""
    run, w = twin.run(FedNova()), twin.initial
    steps, shares = np.array([4, 6, 2]), twin.data.train_sizes / twin.data.train_sizes.sum()
    for round in range(1, run.rounds + 1):
        changes = [twin.descend(w, device, round) - w for device in range(3)]
        w = w + (shares @ steps) * sum(p * c / t for p, c, t in zip(shares, changes, steps, strict=True))
    assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)


@pytest.mark.parametrize("q", [0.0, 2.0])
def test_qffl(twin: Any, q: float) -> None:
    run, w = twin.run(QFFL(q)), twin.initial
    for round in range(1, run.rounds + 1):
        losses = [twin.loss(twin.at(w), device, "train") for device in range(3)]
        steps = [(w - twin.descend(w, device, round)) / RATE for device in range(3)]
        h = [q * f ** (q - 1) * (d @ d) + f**q / RATE for f, d in zip(losses, steps, strict=True)]
        w = w - sum(f**q * d for f, d in zip(losses, steps, strict=True)) / sum(h)
    assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)


def test_qffl_update_of_a_device_without_loss_is_finite(softmax: TrainableModel) -> None:
    device = Device(softmax, (np.zeros((16, 8, 8, 1), np.float32), np.zeros(16, np.int32)))
    bias = np.array([1000] + 9 * [0], np.float32)
    certain = Weights.from_tensors(softmax.layout, [np.zeros((64, 10), np.float32), bias])
    device.restore(certain)
    assert device.loss("train") == 0
    assert QFFL(0.5).local(device, {"weights": certain}).isfinite()


@pytest.mark.parametrize("name", ["small_mlp", "termed"], ids=["on_examples", "on_embeddings"])
def test_head_only(small_twin: Any, name: str, request: pytest.FixtureRequest) -> None:
    run = small_twin.run(HeadOnly(), request.getfixturevalue(name))
    w, head = small_twin.initial, np.arange(53) >= 35
    for round in range(1, run.rounds + 1):
        models = []
        for device in range(3):
            own = w
            for x, y in small_twin.batches(device, round):
                own = own - RATE * head * small_twin.gradient(own, x, y)
            models.append(own)
        w = small_twin.mean(models)
    assert_allclose(run.weights.vector, w[head], rtol=0, atol=1e-5)
    assert_allclose(run.deployed(1).vector, w, rtol=0, atol=1e-5)
    assert {row["state_bytes"] for row in run.rows} == {0}
