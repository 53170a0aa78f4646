"""Interpolation against plain numpy; the share is chosen on validation examples only."""

from typing import Any

import numpy as np

from odt_sim import Device, Fleet, TrainableModel, Weights
from odt_sim.data.devices.federated import FederatedData
from odt_sim.strategies.two_models.interpolation import Interpolation


def mixture(twin: Any, v: Any, w: Any, device: int) -> tuple[float, Any]:
    """Return the share with the best validation loss, and its mixture."""
    mixtures = [i / 10 * v + (1 - i / 10) * w for i in range(11)]
    best = int(np.argmin([twin.loss(twin.at(m), device, "validation") for m in mixtures]))
    return best / 10, mixtures[best]


def test_agrees_with_numpy(twin: Any) -> None:
    """Mixtures have the best loss on some devices."""
    twin = twin.with_mixed_validation()
    run = twin.run(Interpolation())
    w, own = twin.initial, [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        own = [twin.descend(v, device, round) for device, v in enumerate(own)]
        w = twin.mean([twin.descend(w, device, round) for device in range(3)])
    shares, models = zip(*(mixture(twin, v, w, device) for device, v in enumerate(own)), strict=True)
    assert [row["own_share"] for row in run.rows] == list(shares)
    assert any(0 < share < 1 for share in shares)
    twin.assert_deployed(run, models)


def test_unseen_device_trains_and_mixes_a_personal_model(twin: Any) -> None:
    run = twin.run(Interpolation(unseen_epochs=4), fleet=Fleet(unseen=1), rounds=1)
    unseen, w = run.unseen, run.weights.vector.astype(np.float64)
    share, model = mixture(twin, twin.descend(w, unseen, run.rounds, range(4)), w, unseen)
    assert run.rows[unseen]["own_share"] == share > 0
    np.testing.assert_allclose(run.deployed(unseen).vector, model, rtol=0, atol=1e-5)


def test_choice_ignores_test_examples(twin: Any) -> None:
    """Other test labels keep the share; other validation labels change it."""
    run = twin.run(Interpolation())
    for split, same in (("test", True), ("validation", False)):
        other = twin.run(Interpolation(), data=twin.relabelled(split))
        assert ([row["own_share"] for row in other.rows] == [row["own_share"] for row in run.rows]) is same


def test_no_validation_examples_keeps_global_weights(twin: Any) -> None:
    run = twin.run(Interpolation(), data=twin.without_validation(1))
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
