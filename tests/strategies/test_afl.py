"""Agnostic federated learning against plain numpy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from odt_sim import ServerState, TrainableModel, Update, Updates, Weights
from odt_sim.strategies.averaging.afl import AFL, projected


def nearest(values: Any) -> Any:
    """Project onto the simplex by bisection of the number subtracted from all values."""
    low, high = values.min() - 1, values.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(values - high, 0)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_projection_is_the_nearest_point(values: list[float]) -> None:
    found = projected(np.array(values))
    assert found.sum() == pytest.approx(1)
    assert_allclose(found, nearest(np.array(values)), atol=1e-9)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_agrees_with_numpy(twin: Any, rate: float) -> None:
    run, w, mixture = twin.run(AFL(rate)), twin.initial, np.full(3, 1 / 3)
    for round in range(1, run.rounds + 1):
        losses = np.array([twin.loss(twin.at(w), device, "train") for device in range(3)])
        w = np.average([twin.descend(w, device, round) for device in range(3)], axis=0, weights=mixture)
        mixture = nearest(mixture + rate * losses)
    assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    assert_allclose(run.commit.state.private["mixture"], mixture, rtol=0, atol=1e-5)
    assert (mixture.max() > 0.35) == (rate > 0)


def test_server_takes_a_step_of_the_mixture(twin: Any) -> None:
    run, w = twin.run(AFL(server_learning_rate=0.3), rounds=1), twin.initial
    mean = np.mean([twin.descend(w, device, 1) - w for device in range(3)], axis=0)
    assert_allclose(run.weights.vector, w + 0.3 * mean, rtol=0, atol=1e-5)


def sent(softmax: TrainableModel, updates: dict[int, tuple[float, float]]) -> dict[int, Update]:
    """Return updates of equal steps with their losses."""
    layout = softmax.layout
    return {
        id: Update(
            {"weights": Weights(layout, np.full(layout.size, step, np.float32)), "loss": np.array([loss])}, 1, []
        )
        for id, (step, loss) in updates.items()
    }


def test_drawn_cohort_moves_its_own_weights_only(softmax: TrainableModel) -> None:
    """Two of four devices: steps of 0.1 * 4 / 2 times the losses, lowered by 0.125 for all, and then by 0.1875."""
    strategy = AFL(rate=0.1)
    start = Weights.zeros(softmax.layout)
    state = strategy.init(start)
    state = strategy.aggregate(state, Updates({}, 2, 2, 4, sent(softmax, {2: (1.0, 2.0), 0: (3.0, 0.5)})))
    assert_allclose(state.weights.vector, 2.0)
    assert state.private["devices"].tolist() == [0, 2]
    assert_allclose(state.private["mixture"], [0.225, 0.525])
    assert_allclose(state.private["others"], [0.125])
    state = strategy.aggregate(state, Updates({}, 2, 2, 4, sent(softmax, {2: (1.0, 3.0), 3: (-1.0, 0.0)})))
    assert_allclose(state.weights.vector, 2.0 + (0.525 - 0.125) / 0.65, rtol=1e-6)
    assert state.private["devices"].tolist() == [0, 2, 3]
    assert_allclose(state.private["mixture"], nearest(np.array([0.225, 1.125, 0.125, 0.125]))[:3], atol=1e-9)


def test_cohort_without_weight_leaves_the_model(softmax: TrainableModel) -> None:
    state = ServerState(
        {"weights": Weights.zeros(softmax.layout)},
        {"devices": np.array([0, 1]), "mixture": np.array([1.0, 0.0]), "others": np.zeros(0)},
    )
    after = AFL(rate=0.1).aggregate(state, Updates({}, 1, 1, 2, sent(softmax, {1: (1.0, 1.0)})))
    assert_allclose(after.weights.vector, 0.0)
    assert_allclose(after.private["mixture"], [0.9, 0.1])
