"""Interpolation against plain numpy; the share is chosen on validation examples only."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from odt_sim import Device, Fleet, TrainableModel, Weights
from odt_sim.data.devices.federated import FederatedData
from odt_sim.strategies.two_models.interpolation import Interpolation

Simulate = Callable[..., Any]


def mixture(twin: Any, v: Any, w: Any, device: int) -> tuple[float, Any]:
    """Return the share with the best validation loss, and its mixture."""
    mixtures = [i / 10 * v + (1 - i / 10) * w for i in range(11)]
    best = int(np.argmin([twin.loss(twin.at(m), device, "validation") for m in mixtures]))
    return best / 10, mixtures[best]


def test_agrees_with_numpy(simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData) -> None:
    """Devices share some validation examples, so that mixtures have the best loss."""
    indices = data.indices.copy()
    places = np.concatenate([np.arange(start, stop) for start, stop in data.offsets[:, 1:3]])
    indices[places] = indices[np.roll(places, 4)]
    data = replace(data, indices=indices)
    twin = replace(twin, data=data)
    run = simulate(Interpolation(), softmax, data)
    w, own = twin.initial, [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        own = [twin.descend(v, device, round) for device, v in enumerate(own)]
        w = twin.mean([twin.descend(w, device, round) for device in range(3)])
    shares, models = zip(*(mixture(twin, v, w, device) for device, v in enumerate(own)), strict=True)
    assert [row["own_share"] for row in run.rows] == list(shares)
    assert any(0 < share < 1 for share in shares)
    for device, model in enumerate(models):
        np.testing.assert_allclose(run.deployed(device).vector, model, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, models)


def test_unseen_device_trains_and_mixes_a_personal_model(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(Interpolation(unseen_epochs=4), softmax, data, fleet=Fleet(unseen=1), rounds=1)
    unseen, w = unseen_of(run), run.weights.vector.astype(np.float64)
    share, model = mixture(twin, twin.descend(w, unseen, run.rounds, range(4)), w, unseen)
    assert run.rows[unseen]["own_share"] == share > 0
    np.testing.assert_allclose(run.deployed(unseen).vector, model, rtol=0, atol=1e-5)


def test_choice_ignores_test_examples(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    """Other test labels keep the share; other validation labels change it."""
    run = simulate(Interpolation(), softmax, data)
    for split, same in (("test", True), ("validation", False)):
        y = data.y.copy()
        for device in range(3):
            index = getattr(data, split)(device)
            y[index] = (y[index] + 1) % 10
        other = simulate(Interpolation(), softmax, replace(data, y=y))
        assert ([row["own_share"] for row in other.rows] == [row["own_share"] for row in run.rows]) is same


def test_no_validation_examples_keeps_global_weights(
    simulate: Simulate, softmax: TrainableModel, data: FederatedData
) -> None:
    offsets = data.offsets.copy()
    offsets[1, 1] = offsets[1, 2]  # its validation examples become training examples
    run = simulate(Interpolation(), softmax, replace(data, offsets=offsets))
    assert run.rows[1]["own_share"] == 0
    np.testing.assert_array_equal(run.deployed(1).vector, run.weights.vector)


def test_diverged_personal_model_has_no_share(softmax: TrainableModel, data: FederatedData) -> None:
    """An unseen device's model may diverge at deployment, where no device is excluded."""
    rows = data.x[:20], data.y[:20]
    device = Device(softmax, rows, rows)
    shared = device.parameters()
    device.state["own"] = Weights(shared.layout, np.full_like(shared.vector, np.nan))
    np.testing.assert_array_equal(Interpolation().deploy(device, {"weights": shared}).vector, shared.vector)
    assert device.records["own_share"] == 0
