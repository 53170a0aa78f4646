"""pFedMe against plain numpy: an inner personal model in each step of the copy of the global one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel, TrainingPlan
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.strategies.base import Weighting
from odt_sim.strategies.two_models.pfedme import PFedMe

Simulate = Callable[..., Any]
RATE, EPOCHS = 0.1, 2
LAMBDA, INNER, OUTER, BETA = 4.0, 3, 0.1, 1.5


def solved(twin: Any, w: Any, device: int, round: int, epochs: range = range(EPOCHS)) -> tuple[Any, Any]:
    """Return the device's copy of the global model, and its personal model."""
    copy, own = w, w
    for x, y in twin.batches(device, round, epochs):
        for _ in range(INNER):
            own = own - RATE * (twin.gradient(own, x, y) + LAMBDA * (own - copy))
        copy = copy - OUTER * LAMBDA * (copy - own)
    return copy, own


def strategy(unseen_epochs: int = 5, weighting: Weighting = "uniform") -> PFedMe:
    return PFedMe(LAMBDA, INNER, OUTER, unseen_epochs, server_learning_rate=BETA, weighting=weighting)


def test_agrees_with_numpy(
    simulate: Simulate, twin: Any, softmax_either_way: TrainableModel, data: FederatedData
) -> None:
    """With equal weights."""
    run = simulate(strategy(), softmax_either_way, data)
    w = twin.initial
    for round in range(1, run.rounds + 1):
        copies, own = zip(*(solved(twin, w, device, round) for device in range(3)), strict=True)
        w = (1 - BETA) * w + BETA * np.mean(copies, axis=0)
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    for device, model in enumerate(own):
        np.testing.assert_allclose(run.deployed(device).vector, model, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, own)


def test_weighted_by_examples(simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData) -> None:
    run = simulate(strategy(weighting="by_examples"), softmax, data, rounds=1)
    copies = [solved(twin, twin.initial, device, 1)[0] for device in range(3)]
    expected = (1 - BETA) * twin.initial + BETA * twin.mean(copies)
    np.testing.assert_allclose(run.weights.vector, expected, rtol=0, atol=1e-5)


def test_unseen_device_solves_for_a_personal_model(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(strategy(unseen_epochs=3), softmax, data, fleet=Fleet(unseen=1), rounds=1)
    unseen, w = unseen_of(run), run.weights.vector.astype(np.float64)
    _, own = solved(twin, w, unseen, run.rounds, range(3))
    np.testing.assert_allclose(run.deployed(unseen).vector, own, rtol=0, atol=1e-5)


def test_steps_replace_epochs(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    """Three batches are an epoch of the second device."""
    run = simulate(strategy(), softmax, data, rounds=1)
    losses = []
    for steps in (None, 5):
        device = run.device(1)
        device.plan = TrainingPlan(EPOCHS, RATE, steps)
        losses.append(strategy().local(device, run.broadcast).losses)
    np.testing.assert_array_equal(losses[1], losses[0][: 5 * INNER])
    assert losses[0].shape == (6 * INNER,)


def test_statistics_come_from_personal_models(
    simulate: Simulate, grouped: TrainableModel, small_data: FederatedData
) -> None:
    run = simulate(strategy(), grouped, small_data, rounds=1)
    statistics = grouped.layout.select(lambda p: p.role == "statistic")
    mean = np.mean([run.device(id).state["own"].select(statistics).vector for id in range(3)], axis=0)
    np.testing.assert_allclose(run.weights.select(statistics).vector, mean, rtol=0, atol=1e-6)


def test_needs_a_gradient_offset(adam: TrainableModel) -> None:
    with pytest.raises(StrategyError, match="strategy pfedme: needs gradient_offset, which the model adam lacks"):
        PFedMe().check(adam)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("regularization", 0, "a number above 0"),
        ("inner_steps", 0, "a whole number of at least 1"),
        ("outer_learning_rate", -1, "a number above 0"),
        ("unseen_epochs", -1, "a whole number of at least 0"),
    ],
)
def test_settings_out_of_range(setting: str, value: float, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"strategy\.{setting}: expected {expected}, found {value}$"):
        PFedMe(**{setting: value})
