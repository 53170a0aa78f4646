"""LG-FedAvg against plain numpy: one head, personal bodies."""

from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.shared_parts.lg_fedavg import LGFedAvg

RATE = 0.1


def test_agrees_with_numpy(twin: Any, split_softmax: TrainableModel) -> None:
    """The biases are the head and are averaged; the kernels stay."""
    run = twin.run(LGFedAvg(), split_softmax)
    models = [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        models = [twin.descend(w, device, round) for device, w in enumerate(models)]
        head = twin.mean(models)[-10:]
        models = [np.concatenate([w[:-10], head]) for w in models]
    np.testing.assert_allclose(run.weights.vector, head, rtol=0, atol=1e-5)
    twin.assert_deployed(run, models)


def test_unseen_device_trains_its_body_under_the_shared_head(twin: Any, split_softmax: TrainableModel) -> None:
    run = twin.run(LGFedAvg(unseen_epochs=2), split_softmax, fleet=Fleet(unseen=1))
    unseen = run.unseen
    w = np.concatenate([twin.initial[:-10], run.weights.vector]).astype(np.float64)
    for x, y in twin.batches(unseen, run.rounds, range(2)):
        w[:-10] -= RATE * twin.gradient(w, x, y)[:-10]
    np.testing.assert_allclose(run.deployed(unseen).vector, w, rtol=0, atol=1e-5)


def test_normalization_is_part_of_the_body(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(LGFedAvg(), grouped, rounds=1)
    assert {p.group for p in run.weights.layout.parameters} == {"head"}
    assert {p.group for p in run.device(0).state["own"].layout.parameters} == {"body", "norm"}
