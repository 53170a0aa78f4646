"""Server optimizers against plain numpy, with FedAvg as FedAvgM's special case."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from slow import slow_except

from odt_sim import Strategy, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.strategies import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi
from odt_sim.strategies.server.server_optimizer import ServerOptimizer

Simulate = Callable[..., Any]
RATE, B1, B2, TAU = 0.05, 0.8, 0.95, 0.01

SECOND_MOMENTS = {
    FedAdam: lambda v, d: B2 * v + (1 - B2) * d**2,
    FedYogi: lambda v, d: v - (1 - B2) * d**2 * np.sign(v - d**2),
    FedAdagrad: lambda v, d: v + d**2,
}


@pytest.mark.parametrize(
    "strategy",
    [
        FedAdam(beta_1=B1, beta_2=B2, tau=TAU, server_learning_rate=RATE),
        FedYogi(beta_1=B1, beta_2=B2, tau=TAU, server_learning_rate=RATE),
        FedAdagrad(B1, TAU, server_learning_rate=RATE),
    ],
    ids=lambda s: s.name,
)
def test_adaptive_optimizers_agree_with_numpy(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, strategy: Strategy
) -> None:
    run = simulate(strategy, softmax, data)
    w = twin.initial
    m, v = np.zeros_like(w), np.full_like(w, TAU**2)
    for round in range(1, run.rounds + 1):
        delta = twin.mean([twin.descend(w, device, round) for device in range(3)]) - w
        m, v = B1 * m + (1 - B1) * delta, SECOND_MOMENTS[type(strategy)](v, delta)
        w = w + RATE * m / (np.sqrt(v) + TAU)
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    np.testing.assert_allclose(run.commit.state.private["v"], v, rtol=0, atol=1e-6)
    twin.assert_rows(run.rows, [w] * 3)


def test_momentum_agrees_with_numpy(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData
) -> None:
    run = simulate(FedAvgM(0.7, server_learning_rate=0.5), softmax, data)
    w = twin.initial
    m = np.zeros_like(w)
    for round in range(1, run.rounds + 1):
        m = 0.7 * m + twin.mean([twin.descend(w, device, round) for device in range(3)]) - w
        w = w + 0.5 * m
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, [w] * 3)


@pytest.mark.slow
def test_zero_momentum_equals_fedavg(simulate: Simulate, grouped: TrainableModel, small_data: FederatedData) -> None:
    one, other = (simulate(strategy, grouped, small_data) for strategy in (FedAvgM(0), FedAvg()))
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    assert one.rows == other.rows


@pytest.mark.parametrize("kind", slow_except([FedAvgM, FedAdam], [FedAvgM, FedAdam, FedYogi, FedAdagrad]))
def test_statistics_are_averaged(
    simulate: Simulate, grouped: TrainableModel, small_data: FederatedData, kind: type[ServerOptimizer]
) -> None:
    """In the first round BatchNorm statistics equal FedAvg's bit for bit, and the weights differ."""
    one, other = (simulate(s, grouped, small_data, rounds=1) for s in (kind(server_learning_rate=0.5), FedAvg()))
    assert one.commit.state.private["m"].shape == (grouped.trainable_layout.size,)
    for p in grouped.parameters:
        same = np.array_equal(one.weights[p.name], other.weights[p.name])
        assert same == (p.role == "statistic"), p.name


def test_yogi_decays_slower_than_adam() -> None:
    v, squared = np.array([1, 1, 4], np.float32), np.array([0.01, 1, 9], np.float32)
    np.testing.assert_allclose(FedAdam(beta_2=0.9).second_moment(v, squared), [0.901, 1, 4.5], rtol=1e-6)
    np.testing.assert_allclose(FedYogi(beta_2=0.9).second_moment(v, squared), [0.999, 1, 4.9], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (FedAvgM, {"beta": 1}, r"^strategy\.beta: expected a number of at least 0 and below 1, found 1$"),
        (FedAvgM, {"server_learning_rate": 0}, r"^strategy\.server_learning_rate: expected a number above 0, found 0$"),
        (FedAdam, {"beta_1": -0.1}, r"^strategy\.beta_1: expected a number of at least 0 and below 1, found -0\.1$"),
        (FedYogi, {"beta_2": 1.0}, r"^strategy\.beta_2: expected a number of at least 0 and below 1, found 1\.0$"),
        (FedAdagrad, {"tau": 0}, r"^strategy\.tau: expected a number above 0, found 0$"),
    ],
)
def test_settings_out_of_range(kind: type[ServerOptimizer], settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        kind(**settings)
