"""pFedMe against plain numpy: an inner personal model in each step of the copy of the global one."""

from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel, TrainingPlan
from odt_sim.strategies.base import Weighting
from odt_sim.strategies.two_models.pfedme import PFedMe

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


def test_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel) -> None:
    """With equal weights."""
    run = twin.run(strategy(), softmax_either_way)
    w = twin.initial
    for round in range(1, run.rounds + 1):
        copies, own = zip(*(solved(twin, w, device, round) for device in range(3)), strict=True)
        w = (1 - BETA) * w + BETA * np.mean(copies, axis=0)
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    twin.assert_deployed(run, own)


def test_weighted_by_examples(twin: Any) -> None:
    run = twin.run(strategy(weighting="by_examples"), rounds=1)
    copies = [solved(twin, twin.initial, device, 1)[0] for device in range(3)]
    expected = (1 - BETA) * twin.initial + BETA * twin.mean(copies)
    np.testing.assert_allclose(run.weights.vector, expected, rtol=0, atol=1e-5)


def test_unseen_device_solves_for_a_personal_model(twin: Any) -> None:
    run = twin.run(strategy(unseen_epochs=3), fleet=Fleet(unseen=1), rounds=1)
    unseen, w = run.unseen, run.weights.vector.astype(np.float64)
    _, own = solved(twin, w, unseen, run.rounds, range(3))
    np.testing.assert_allclose(run.deployed(unseen).vector, own, rtol=0, atol=1e-5)


def test_steps_replace_epochs(twin: Any) -> None:
    """Three batches are an epoch of the second device."""
    run = twin.run(strategy(), rounds=1)
    losses = []
    for steps in (None, 5):
        device = run.device(1)
        device.plan = TrainingPlan(EPOCHS, RATE, steps)
        losses.append(strategy().local(device, run.broadcast).losses)
    np.testing.assert_array_equal(losses[1], losses[0][: 5 * INNER])
    assert losses[0].shape == (6 * INNER,)


def test_statistics_come_from_personal_models(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(strategy(), grouped, rounds=1)
    statistics = grouped.layout.select(lambda p: p.role == "statistic")
    mean = np.mean([run.device(id).state["own"].select(statistics).vector for id in range(3)], axis=0)
    np.testing.assert_allclose(run.weights.select(statistics).vector, mean, rtol=0, atol=1e-6)
