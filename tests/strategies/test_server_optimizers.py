"""Server optimizers against plain numpy, with FedAvg as FedAvgM's special case."""

from typing import Any

import numpy as np
import pytest
from slow import slow_except

from odt_sim import Strategy, TrainableModel
from odt_sim.strategies import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi
from odt_sim.strategies.server.server_optimizer import ServerOptimizer

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
def test_adaptive_optimizers_agree_with_numpy(twin: Any, strategy: Strategy) -> None:
    run = twin.run(strategy)
    w = twin.initial
    m, v = np.zeros_like(w), np.full_like(w, TAU**2)
    for round in range(1, run.rounds + 1):
        delta = twin.mean([twin.descend(w, device, round) for device in range(3)]) - w
        m, v = B1 * m + (1 - B1) * delta, SECOND_MOMENTS[type(strategy)](v, delta)
        w = w + RATE * m / (np.sqrt(v) + TAU)
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    np.testing.assert_allclose(run.commit.state.private["v"], v, rtol=0, atol=1e-6)
    twin.assert_rows(run.rows, [w] * 3)


def test_momentum_agrees_with_numpy(twin: Any) -> None:
    run = twin.run(FedAvgM(0.7, server_learning_rate=0.5))
    w = twin.initial
    m = np.zeros_like(w)
    for round in range(1, run.rounds + 1):
        m = 0.7 * m + twin.mean([twin.descend(w, device, round) for device in range(3)]) - w
        w = w + 0.5 * m
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, [w] * 3)


@pytest.mark.slow
def test_zero_momentum_equals_fedavg(small_twin: Any, grouped: TrainableModel) -> None:
    one, other = (small_twin.run(strategy, grouped) for strategy in (FedAvgM(0), FedAvg()))
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    assert one.rows == other.rows


@pytest.mark.parametrize("kind", slow_except([FedAvgM, FedAdam], [FedAvgM, FedAdam, FedYogi, FedAdagrad]))
def test_statistics_are_averaged(small_twin: Any, grouped: TrainableModel, kind: type[ServerOptimizer]) -> None:
    """In the first round BatchNorm statistics equal FedAvg's bit for bit, and the weights differ."""
    one, other = (small_twin.run(s, grouped, rounds=1) for s in (kind(server_learning_rate=0.5), FedAvg()))
    assert one.commit.state.private["m"].shape == (grouped.trainable_layout.size,)
    for p in grouped.parameters:
        same = np.array_equal(one.weights[p.name], other.weights[p.name])
        assert same == (p.role == "statistic"), p.name


def test_yogi_decays_slower_than_adam() -> None:
    v, squared = np.array([1, 1, 4], np.float32), np.array([0.01, 1, 9], np.float32)
    np.testing.assert_allclose(FedAdam(beta_2=0.9).second_moment(v, squared), [0.901, 1, 4.5], rtol=1e-6)
    np.testing.assert_allclose(FedYogi(beta_2=0.9).second_moment(v, squared), [0.999, 1, 4.9], rtol=1e-6)
