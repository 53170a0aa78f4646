"""FedEM against plain numpy: models trained on weighted examples, and mixed on each device."""

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from orders import orders

from odt_sim import Device, Fleet, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.random import generator_for
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.clusters.fedem import FedEM, responsibilities

RATE, SEED, EPOCHS, BATCH = 0.1, 4, 2, 16  # as in the runs, see conftest


def e_step(twin: Any, pi: Any, models: Any, device: int) -> Any:
    x, y = twin.part("train", device)
    q = pi * np.exp(-np.stack([twin.at(w).losses(x, y) for w in models], axis=1))
    return q / q.sum(axis=1, keepdims=True)


def m_step(twin: Any, w: Any, q: Any, device: int, round: int) -> Any:
    """Descend the mean of the weighted losses of each batch, one gradient for each example."""
    x, y = twin.part("train", device)
    for order in islice(orders(SEED, device, round, len(x)), EPOCHS):
        for rows in np.split(order, range(BATCH, len(x), BATCH)):
            each = [q[s] * twin.gradient(w, x[s : s + 1], y[s : s + 1]) for s in rows]
            w = w - RATE * np.mean(each, axis=0)
    return w


def predicted(twin: Any, pi: Any, models: Any, x: Any) -> Any:
    return sum(share * twin.at(w)._probabilities(x) for share, w in zip(pi, models, strict=True))


def test_agrees_with_numpy(twin: Any) -> None:
    run = twin.run(FedEM(components=2))
    models = [twin.initial] * 2
    mixtures = [generator_for(SEED, device, 1, "mixture").dirichlet(np.ones(2)) for device in range(3)]
    for round in range(1, run.rounds + 1):
        shares = [e_step(twin, pi, models, device) for device, pi in enumerate(mixtures)]
        mixtures = [q.mean(axis=0) for q in shares]
        models = [
            twin.mean([m_step(twin, w, q[:, i], device, round) for device, q in enumerate(shares)])
            for i, w in enumerate(models)
        ]
    assert np.abs(models[0] - models[1]).max() > 1e-2
    for i, w in enumerate(models):
        assert_allclose(run.broadcast[f"weights.{i}"].vector, w, rtol=0, atol=1e-5)
    for device, row in enumerate(run.rows):
        x, y = twin.part("test", device)
        found = run.deployed(device)
        assert_allclose(found.shares, mixtures[device], rtol=0, atol=1e-6)
        expected = predicted(twin, mixtures[device], models, x)
        assert_allclose(np.exp(found.predict(x)), expected, rtol=0, atol=1e-5)
        assert row["accuracy"] == (expected.argmax(axis=1) == y).mean()
        assert row["pi_0"] == pytest.approx(mixtures[device][0], abs=1e-6)


def test_one_component_is_fedavg(twin: Any) -> None:
    one, plain = (twin.run(strategy) for strategy in (FedEM(components=1), FedAvg()))
    np.testing.assert_array_equal(one.broadcast["weights.0"].vector, plain.weights.vector)


def test_all_models_travel(twin: Any, softmax: TrainableModel) -> None:
    run = twin.run(FedEM(components=2), rounds=1)
    [row] = [json.loads(line) for line in (run.directory / "rounds.jsonl").read_text().splitlines()]
    assert (row["bytes_down"], row["bytes_up"]) == (3 * 2 * 4 * softmax.layout.size,) * 2


def test_unseen_device_mixes_the_models_by_its_losses(twin: Any) -> None:
    run = twin.run(FedEM(components=2), fleet=Fleet(unseen=1))
    unseen, models = run.unseen, [run.broadcast[f"weights.{i}"].vector.astype(np.float64) for i in range(2)]
    pi = np.array([0.5, 0.5])
    for _ in range(100):
        pi = e_step(twin, pi, models, unseen).mean(axis=0)
    assert_allclose(run.deployed(unseen).shares, pi, rtol=0, atol=1e-5)


def test_responsibilities() -> None:
    """Losses of log 2 and log 6 are likelihoods of 1/2 and 1/6; a model of share 0 takes no example."""
    losses = np.log([[2.0, 6.0, 1.0], [3.0, 1.0, 1.0]])
    assert_allclose(responsibilities(np.array([0.25, 0.75, 0.0]), losses), [[0.5, 0.5, 0.0], [0.1, 0.9, 0.0]])


def test_example_losses_average_to_the_loss(softmax: TrainableModel, data: FederatedData) -> None:
    device = Device(softmax, (data.x[:20], data.y[:20]))
    losses = device.example_losses("train")
    assert losses.shape == (20,)
    assert losses.mean() == pytest.approx(device.loss("train"))
