"""SCAFFOLD against plain numpy, its control variates, and FedAvg where these are zero."""

import json
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel, TrainingPlan
from odt_sim.simulation.run.cohort import choose_cohort, choose_unseen
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.scaffold import Scaffold
from odt_sim.strategies.base import ServerState, Updates

STEPS, RATE = [4, 6, 2], 0.1
"""Number of steps of each device in two epochs of batches of 16, and their size."""


class ZeroControls(Scaffold):
    """Scaffold with all control variates reset."""

    def local(self, device: Any, broadcast: Any) -> Any:
        update = super().local(device, broadcast)
        del device.state["control"]
        return update

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        after = super().aggregate(state, updates)
        return ServerState({**after.broadcast, "control": state.broadcast["control"]}, after.private)


@pytest.mark.parametrize("option", [1, 2])
def test_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel, option: int) -> None:
    run = twin.run(Scaffold(option), softmax_either_way)
    w = twin.initial
    c, own = np.zeros_like(w), [np.zeros_like(w) for _ in range(3)]
    for round in range(1, run.rounds + 1):
        corrections = [lambda _, b=c - c_i: b for c_i in own]
        trained = [twin.descend(w, i, round, extra=corrections[i]) for i in range(3)]
        changes = [-c + (w - y) / (steps * RATE) for y, steps in zip(trained, STEPS, strict=True)]
        if option == 1:
            changes = [twin.gradient(w, *twin.part("train", i)) - own[i] for i in range(3)]
        own = [c_i + change for c_i, change in zip(own, changes, strict=True)]
        w, c = np.mean(trained, axis=0), c + sum(changes) / 3
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    np.testing.assert_allclose(run.broadcast["control"].vector, c, rtol=0, atol=1e-5)
    for device in range(3):
        np.testing.assert_allclose(run.device(device).state["control"].vector, own[device], rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, [w] * 3)


def test_zero_controls_equal_fedavg(twin: Any, softmax_either_way: TrainableModel) -> None:
    one, other = (twin.run(strategy, softmax_either_way) for strategy in (ZeroControls(), FedAvg(weighting="uniform")))
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    assert one.rows == other.rows


def test_partial_participation(twin: Any) -> None:
    """One of two devices a round: the control variate moves by half of the device's change."""
    run = twin.run(Scaffold(2), fleet=Fleet(cohort=1, unseen=1))
    (unseen,) = choose_unseen(3, 1, 4)
    seen = np.setdiff1d(range(3), [unseen])
    w = twin.initial
    c, own = np.zeros_like(w), [np.zeros_like(w) for _ in range(3)]
    for round in range(1, run.rounds + 1):
        (i,) = choose_cohort(seen, 1, 4, round)
        y = twin.descend(w, i, round, extra=lambda _, b=c - own[i]: b)
        change = -c + (w - y) / (STEPS[i] * RATE)
        own[i], w, c = own[i] + change, y, c + change / 2
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    np.testing.assert_allclose(run.broadcast["control"].vector, c, rtol=0, atol=1e-5)
    assert run.device(unseen).state == {}


def test_mean_control_variate_equals_the_server_control(twin: Any) -> None:
    run = twin.run(Scaffold())
    own = [run.device(device).state["control"].vector for device in range(3)]
    np.testing.assert_allclose(run.broadcast["control"].vector, np.mean(own, axis=0), rtol=0, atol=1e-6)


def test_statistics_travel_without_control_variate(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(Scaffold(), grouped, rounds=1)
    plain = small_twin.run(FedAvg(weighting="uniform"), grouped, rounds=1)
    np.testing.assert_array_equal(run.weights.vector, plain.weights.vector)  # in the first round all controls are zero
    assert run.broadcast["control"].layout == grouped.trainable_layout
    (record,) = map(json.loads, (run.directory / "rounds.jsonl").read_text().splitlines())
    both = 3 * 4 * (grouped.layout.size + grouped.trainable_layout.size)
    assert (record["bytes_down"], record["bytes_up"]) == (both, both)


def test_zero_steps_keep_the_control_variate(twin: Any) -> None:
    run = twin.run(Scaffold())
    device = run.device(0)
    device.plan, before = TrainingPlan(epochs=0), device.state["control"].vector.copy()
    update = Scaffold().local(device, run.broadcast)
    np.testing.assert_array_equal(device.state["control"].vector, before)
    assert not any(tensor.vector.any() for tensor in update.tensors.values())
