"""Per-FedAvg against plain numpy: gradients after one step, and one step at deployment."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from orders import orders

from odt_sim import TrainableModel, TrainingPlan
from odt_sim.strategies.meta.perfedavg import PerFedAvg

RATE, ADAPTATION, EPOCHS, BATCH, SEED = 0.1, 0.2, 2, 16, 4


def second(twin: Any, device: int, round: int) -> Iterator[Any]:
    """Yield the batches of the second gradients."""
    x, y = twin.part("train", device)
    for order in islice(orders(SEED, device, round, len(x), "second"), EPOCHS):
        for start in range(0, len(x), BATCH):
            yield x[order[start : start + BATCH]], y[order[start : start + BATCH]]


def descended(twin: Any, w: Any, device: int, round: int) -> Any:
    """Return the flat weights of a device after its round."""
    for one, other in zip(twin.batches(device, round), second(twin, device, round), strict=True):
        w = w - RATE * twin.gradient(w - ADAPTATION * twin.gradient(w, *one), *other)
    return w


def test_agrees_with_numpy(twin: Any) -> None:
    """Equal weights; the deployed step uses the gradient over all training examples."""
    run = twin.run(PerFedAvg(ADAPTATION))
    w = twin.initial
    for round in range(1, run.rounds + 1):
        w = np.mean([descended(twin, w, device, round) for device in range(3)], axis=0)
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    adapted = [w - ADAPTATION * twin.gradient(w, *twin.part("train", device)) for device in range(3)]
    for device, own in enumerate(adapted):
        np.testing.assert_allclose(run.deployed(device).vector, own, rtol=0, atol=1e-5)
        assert run.device(device).state == {}
    twin.assert_rows(run.rows, adapted)


def test_weighted_by_examples(twin: Any) -> None:
    run = twin.run(PerFedAvg(ADAPTATION, weighting="by_examples"), rounds=1)
    expected = twin.mean([descended(twin, twin.initial, device, 1) for device in range(3)])
    np.testing.assert_allclose(run.weights.vector, expected, rtol=0, atol=1e-5)


def test_steps_replace_epochs(twin: Any) -> None:
    """Three batches are an epoch of the second device."""
    run = twin.run(PerFedAvg(ADAPTATION), rounds=1)
    losses = []
    for steps in (None, 5):
        device = run.device(1)
        device.plan = TrainingPlan(EPOCHS, RATE, steps)
        losses.append(PerFedAvg(ADAPTATION).local(device, run.broadcast).losses)
    np.testing.assert_array_equal(losses[1], losses[0][:5])
    assert losses[0].shape == (6,)


def test_deployed_step_keeps_statistics(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(PerFedAvg(ADAPTATION), grouped, rounds=1)
    deployed = run.deployed(0)
    for p in grouped.parameters:
        assert np.array_equal(deployed[p.name], run.weights[p.name]) is (p.role == "statistic"), p.name
