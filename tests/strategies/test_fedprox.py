"""FedProx against plain numpy, partial work, and FedAvg as special case."""

import json
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, Strategy, TrainableModel
from odt_sim.simulation.run.cohort import choose_stragglers
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.fedprox import FedProx

MU, SEED = 0.5, 4  # SEED is that of all runs


def test_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel) -> None:
    run = twin.run(FedProx(MU), softmax_either_way)
    w = twin.initial
    for round in range(1, run.rounds + 1):
        pull = lambda own, start=w: MU * (own - start)  # noqa: E731
        w = twin.mean([twin.descend(w, device, round, extra=pull) for device in range(3)])
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, [w] * 3)
    assert np.abs(run.weights.vector - twin.run(FedAvg(), softmax_either_way).weights.vector).max() > 1e-3


def test_graph_and_host_agree(twin: Any, softmax: TrainableModel, softmax_with_offset: TrainableModel) -> None:
    one, other = (twin.run(FedProx(MU), model) for model in (softmax, softmax_with_offset))
    np.testing.assert_allclose(one.weights.vector, other.weights.vector, rtol=0, atol=1e-6)


def test_zero_mu_equals_fedavg(twin: Any, softmax_either_way: TrainableModel) -> None:
    one, other = (twin.run(strategy, softmax_either_way) for strategy in (FedProx(0), FedAvg()))
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    assert one.rows == other.rows


def test_statistics_and_masks_equal_fedavg(small_twin: Any, grouped: TrainableModel) -> None:
    """The proximal term leaves out statistics and masks: with `mu` 0 nothing differs, above 0 all weights do."""
    none, plain, pulled = (small_twin.run(s, grouped, rounds=2) for s in (FedProx(0), FedAvg(), FedProx(MU)))
    np.testing.assert_array_equal(none.weights.vector, plain.weights.vector)
    for p in grouped.parameters:
        assert not np.array_equal(pulled.weights[p.name], plain.weights[p.name]), p.name


@pytest.mark.parametrize("strategy", [FedProx(MU), FedAvg()], ids=["a part counts", "dropped"])
def test_stragglers(strategy: Strategy, twin: Any) -> None:
    """Stragglers do one of two epochs; FedProx counts them, FedAvg averages over the others."""
    run = twin.run(strategy, fleet=Fleet(stragglers=0.6))
    mu = MU if strategy.partial_work else 0
    w, before = twin.initial, set()
    for round in range(1, run.rounds + 1):
        slow = choose_stragglers(range(3), 0.6, SEED, round)
        pull = lambda own, start=w: mu * (own - start)  # noqa: E731
        devices = [device for device in range(3) if strategy.partial_work or device not in slow]
        trained = [twin.descend(w, device, round, range(2 - (device in slow)), pull) for device in devices]
        w = np.average(trained, axis=0, weights=twin.data.train_sizes[devices])
        before.add(tuple(slow))
    assert len(before) > 1
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)


def test_summary_lists_settings(twin: Any) -> None:
    run = twin.run(FedProx(MU), rounds=1, fleet=Fleet(stragglers=0.6))
    settings = json.loads((run.directory / "summary.json").read_text())["settings"]
    assert (settings["strategy.mu"], settings["fleet.stragglers"]) == ("0.5", "0.6")
