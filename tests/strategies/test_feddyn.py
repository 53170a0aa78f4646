"""FedDyn against plain numpy, with FedAvg as special case."""

from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel
from odt_sim.simulation.run.cohort import choose_cohort, choose_unseen
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.feddyn import FedDyn

ALPHA = 0.3


def test_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel) -> None:
    run = twin.run(FedDyn(ALPHA), softmax_either_way)
    w = twin.initial
    h, own = np.zeros_like(w), [np.zeros_like(w) for _ in range(3)]
    for round in range(1, run.rounds + 1):
        regularized = [lambda w_i, h_i=h_i, w=w: -h_i + ALPHA * (w_i - w) for h_i in own]
        trained = [twin.descend(w, i, round, extra=regularized[i]) for i in range(3)]
        own = [h_i - ALPHA * (w_i - w) for h_i, w_i in zip(own, trained, strict=True)]
        h = h - ALPHA / 3 * sum(w_i - w for w_i in trained)
        w = np.mean(trained, axis=0) - h / ALPHA
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    np.testing.assert_allclose(run.commit.state.private["h"].vector, h, rtol=0, atol=1e-5)
    for device in range(3):
        np.testing.assert_allclose(run.device(device).state["h"].vector, own[device], rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, [w] * 3)


def test_zero_alpha_equals_fedavg(twin: Any, softmax_either_way: TrainableModel) -> None:
    one, other = (twin.run(strategy, softmax_either_way) for strategy in (FedDyn(0), FedAvg(weighting="uniform")))
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    assert one.figures == other.figures


def test_partial_participation(twin: Any) -> None:
    """One of two devices a round: the server's `h` moves by half of the device's."""
    run = twin.run(FedDyn(ALPHA), fleet=Fleet(cohort=1, unseen=1))
    (unseen,) = choose_unseen(3, 1, 4)
    seen = np.setdiff1d(range(3), [unseen])
    w = twin.initial
    h, own = np.zeros_like(w), [np.zeros_like(w) for _ in range(3)]
    for round in range(1, run.rounds + 1):
        (i,) = choose_cohort(seen, 1, 4, round)
        w_i = twin.descend(w, i, round, extra=lambda v, w=w, h_i=own[i]: -h_i + ALPHA * (v - w))
        own[i], h = own[i] - ALPHA * (w_i - w), h - ALPHA / 2 * (w_i - w)
        w = w_i - h / ALPHA
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    assert run.device(unseen).state == {}


def test_statistics_are_averaged_without_regularizer(small_twin: Any, grouped: TrainableModel) -> None:
    """The first round differs from FedAvg with the same proximal term by `-h / alpha` only, not in statistics."""
    run = small_twin.run(FedDyn(ALPHA), grouped, rounds=1)
    total = np.zeros(grouped.layout.size)
    for id in range(3):
        device = run.device(id)
        start = device.parameters()
        device.state = {}
        update = FedDyn(ALPHA).local(device, {"weights": start})
        total += update.tensors["weights"].vector.astype(float)
    averaged = type(start)(start.layout, start.vector + (total / 3).astype(np.float32))
    for p in grouped.parameters:
        same = np.array_equal(run.weights[p.name], averaged[p.name])
        assert same == (p.role == "statistic"), p.name
