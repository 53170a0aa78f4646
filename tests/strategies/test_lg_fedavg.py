"""LG-FedAvg against plain numpy: one head, personal bodies."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import StrategyError
from odt_sim.strategies.shared_parts.lg_fedavg import LGFedAvg

Simulate = Callable[..., Any]
RATE = 0.1


def test_agrees_with_numpy(simulate: Simulate, twin: Any, split_softmax: TrainableModel, data: FederatedData) -> None:
    """The biases are the head and are averaged; the kernels stay."""
    run = simulate(LGFedAvg(), split_softmax, data)
    models = [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        models = [twin.descend(w, device, round) for device, w in enumerate(models)]
        head = twin.mean(models)[-10:]
        models = [np.concatenate([w[:-10], head]) for w in models]
    np.testing.assert_allclose(run.weights.vector, head, rtol=0, atol=1e-5)
    for device, w in enumerate(models):
        np.testing.assert_allclose(run.deployed(device).vector, w, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, models)


def test_unseen_device_trains_its_body_under_the_shared_head(
    simulate: Simulate, twin: Any, split_softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(LGFedAvg(unseen_epochs=2), split_softmax, data, fleet=Fleet(unseen=1))
    unseen = unseen_of(run)
    w = np.concatenate([twin.initial[:-10], run.weights.vector]).astype(np.float64)
    for x, y in twin.batches(unseen, run.rounds, range(2)):
        w[:-10] -= RATE * twin.gradient(w, x, y)[:-10]
    np.testing.assert_allclose(run.deployed(unseen).vector, w, rtol=0, atol=1e-5)


def test_normalization_is_part_of_the_body(
    simulate: Simulate, grouped: TrainableModel, small_data: FederatedData
) -> None:
    run = simulate(LGFedAvg(), grouped, small_data, rounds=1)
    assert {p.group for p in run.weights.layout.parameters} == {"head"}
    assert {p.group for p in run.device(0).state["own"].layout.parameters} == {"body", "norm"}


def test_needs_a_body(softmax: TrainableModel) -> None:
    with pytest.raises(StrategyError, match="strategy lg_fedavg: needs body, which the model softmax lacks"):
        LGFedAvg().check(softmax)
