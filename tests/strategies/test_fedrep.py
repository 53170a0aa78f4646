"""FedRep against plain numpy: the head under the received body, then the body under this head."""

from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.shared_parts.fedrep import FedRep

RATE, HEAD_EPOCHS, EPOCHS = 0.1, 3, 2


def descended(twin: Any, w: Any, part: slice, device: int, round: int, epochs: range) -> Any:
    """Return the weights after steps on a part of them."""
    w = w.copy()
    for x, y in twin.batches(device, round, epochs):
        w[part] -= RATE * twin.gradient(w, x, y)[part]
    return w


def test_agrees_with_numpy(small_twin: Any) -> None:
    twin, head = small_twin, small_twin.model.head
    run = small_twin.run(FedRep(HEAD_EPOCHS))
    models = [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        for device, w in enumerate(models):
            w = descended(twin, w, head, device, round, range(HEAD_EPOCHS))
            models[device] = descended(
                twin, w, slice(0, head.start), device, round, range(HEAD_EPOCHS, HEAD_EPOCHS + EPOCHS)
            )
        body = np.mean(models, axis=0)[: head.start]
        models = [np.concatenate([body, w[head]]) for w in models]
    np.testing.assert_allclose(run.weights.vector, body, rtol=0, atol=1e-5)
    twin.assert_deployed(run, models)


def test_unseen_device_trains_its_head_under_the_shared_body(small_twin: Any) -> None:
    run = small_twin.run(FedRep(1, unseen_epochs=4), fleet=Fleet(unseen=1), rounds=1)
    unseen, head = run.unseen, small_twin.model.head
    w = np.concatenate([run.weights.vector, small_twin.initial[head]]).astype(np.float64)
    w = descended(small_twin, w, head, unseen, run.rounds, range(4))
    np.testing.assert_allclose(run.deployed(unseen).vector, w, rtol=0, atol=1e-5)


def test_statistics_train_with_the_body_and_travel(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(FedRep(HEAD_EPOCHS), grouped, rounds=1)
    assert {p.group for p in run.weights.layout.parameters} == {"body", "norm"}
    statistics = run.weights.layout.select(lambda p: p.role == "statistic")
    total = np.zeros(statistics.size)
    for id in range(3):
        device = run.device(id)
        before = device.parameters()
        device.train(HEAD_EPOCHS, group="head")
        np.testing.assert_array_equal(device.parameters().select(statistics).vector, before.select(statistics).vector)
        device.train(group="body_norm")
        total += device.parameters().select(statistics).vector
    np.testing.assert_allclose(run.weights.select(statistics).vector, total / 3, rtol=0, atol=1e-6)
