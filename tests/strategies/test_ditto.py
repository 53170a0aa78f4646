"""Ditto against plain numpy: a personal model near the global one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, Strategy, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.two_models.ditto import Ditto
from odt_sim.strategies.two_models.interpolation import Interpolation

Simulate = Callable[..., Any]
LAMBDA = 0.7


def test_agrees_with_numpy(
    simulate: Simulate, twin: Any, softmax_either_way: TrainableModel, data: FederatedData
) -> None:
    run = simulate(Ditto(LAMBDA), softmax_either_way, data)
    w, own = twin.initial, [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        own = [twin.descend(v, device, round, extra=lambda v, w=w: LAMBDA * (v - w)) for device, v in enumerate(own)]
        w = twin.mean([twin.descend(w, device, round) for device in range(3)])
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    for device, v in enumerate(own):
        np.testing.assert_allclose(run.deployed(device).vector, v, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, own)


def test_unseen_device_trains_a_model_near_the_global_one(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(Ditto(LAMBDA, unseen_epochs=4), softmax, data, fleet=Fleet(unseen=1), rounds=1)
    unseen, w = unseen_of(run), run.weights.vector.astype(np.float64)
    v = twin.descend(w, unseen, run.rounds, range(4), extra=lambda v: LAMBDA * (v - w))
    np.testing.assert_allclose(run.deployed(unseen).vector, v, rtol=0, atol=1e-5)


@pytest.mark.parametrize("strategy", [Ditto(0.0), Ditto(LAMBDA), Interpolation()], ids=["free", "near", "mixed"])
def test_global_model_equals_fedavg(
    simulate: Simulate, grouped: TrainableModel, small_data: FederatedData, strategy: Strategy
) -> None:
    """Bit for bit, with Dropout and BatchNormalization."""
    run, plain = simulate(strategy, grouped, small_data), simulate(FedAvg(), grouped, small_data)
    np.testing.assert_array_equal(run.weights.vector, plain.weights.vector)
    assert [row["global_loss"] for row in run.rows] == [row["loss"] for row in plain.rows]


@pytest.mark.parametrize("name", ["grouped", "adam_with_offset"])
def test_zero_regularization_equals_local_training(
    simulate: Simulate, small_data: FederatedData, name: str, request: pytest.FixtureRequest
) -> None:
    """Bit for bit: same batches and masks, own statistics, and slots that persist from round to round."""
    model = request.getfixturevalue(name)
    run, alone = simulate(Ditto(0.0), model, small_data), simulate(Local(), model, small_data)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, alone.deployed(device).vector)
    assert [row["loss"] for row in run.rows] == [row["loss"] for row in alone.rows]


def test_needs_a_gradient_offset(adam: TrainableModel) -> None:
    with pytest.raises(StrategyError, match="strategy ditto: needs gradient_offset, which the model adam lacks"):
        Ditto().check(adam)


@pytest.mark.parametrize("factor", [-0.1, float("inf"), "1"])
def test_regularization_out_of_range(factor: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"strategy\.regularization: expected a number of at least 0, found "):
        Ditto(factor)
