"""FedAMP against plain numpy: a mixture of similar models for each device."""

from collections.abc import Callable
from math import exp
from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel, Weights
from odt_sim.strategies.base import ServerState, Update, Updates
from odt_sim.strategies.clusters.fedamp import FedAMP

SIGMA, ALPHA, LAMBDA = 2.0, 0.8, 0.3


def near(mixture: Any) -> Callable[[Any], Any]:
    return lambda w: LAMBDA / ALPHA * (w - mixture)


def mixed(models: Any, i: int) -> Any:
    shares = [ALPHA / SIGMA * exp(-float(((models[i] - w) ** 2).sum()) / SIGMA) for w in models]
    shares[i] = 0
    shares = [share / max(sum(shares), 1) for share in shares]
    return (1 - sum(shares)) * models[i] + sum(share * w for share, w in zip(shares, models, strict=True))


def test_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel) -> None:
    run = twin.run(FedAMP(SIGMA, ALPHA, LAMBDA), softmax_either_way)
    mixtures = [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        models = [twin.descend(u, device, round, extra=near(u)) for device, u in enumerate(mixtures)]
        mixtures = [mixed(models, device) for device in range(3)]
    for device in range(3):
        received = run.strategy.message(run.commit.state, device)["weights"].vector
        np.testing.assert_allclose(received, mixtures[device], rtol=0, atol=1e-5)
        np.testing.assert_allclose(run.deployed(device).vector, models[device], rtol=0, atol=1e-5)
        assert np.abs(mixtures[device] - models[device]).max() > 1e-2
    np.testing.assert_allclose(run.broadcast["mean"].vector, np.mean(models, axis=0), rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, models)


def test_device_downloads_only_its_mixture(twin: Any, softmax: TrainableModel) -> None:
    """Two of three devices per round; a device unknown to the server receives the mean."""
    run = twin.run(FedAMP(), fleet=Fleet(cohort=2))
    size = softmax.layout.size * 4
    assert run.traffic == [(2 * size, 2 * size)] * 3


def test_unseen_device_trains_from_the_mean(twin: Any) -> None:
    run = twin.run(FedAMP(SIGMA, ALPHA, LAMBDA, unseen_epochs=3), fleet=Fleet(unseen=1), rounds=1)
    unseen, mean = run.unseen, run.broadcast["mean"].vector.astype(np.float64)
    own = twin.descend(mean, unseen, run.rounds, range(3), extra=near(mean))
    np.testing.assert_allclose(run.deployed(unseen).vector, own, rtol=0, atol=1e-5)


def test_influences() -> None:
    """Three models on a line: equal models share most; many equal models are scaled to a sum of 1."""
    line, same = np.array([[0.0], [0], [2]], np.float32), np.zeros((3, 1), np.float32)
    shares = [FedAMP(sigma=1.0, alpha=0.5)._influences(line, device) for device in range(3)]
    far = 0.5 * exp(-4)
    np.testing.assert_allclose(shares, [[0.5 - far, 0.5, far], [0.5, 0.5 - far, far], [far, far, 1 - 2 * far]])
    crowd = [FedAMP(sigma=1.0, alpha=1.0)._influences(same, device) for device in range(3)]
    np.testing.assert_allclose(crowd, [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])


def test_result_does_not_depend_on_arrival_order(softmax: TrainableModel) -> None:
    """A resumed run reads the models in another order."""
    layout, values = (
        softmax.layout,
        {"9": 1e17, "10": -1e17, "2": 1.0, "11": 0.0},
    )  # the float64 sum depends on the order
    models = {name: Weights(layout, np.full(layout.size, value, np.float32)) for name, value in values.items()}
    updates = Updates({}, 1.0, 1, 5, {3: Update({"weights": models["11"]}, 1.0, np.zeros(1, np.float32))})
    one, other = (
        FedAMP().aggregate(ServerState({"mean": models["11"]}, {name: models[name] for name in names}), updates)
        for names in (list(models), sorted(models))
    )
    np.testing.assert_array_equal(one.broadcast["mean"].vector, other.broadcast["mean"].vector)
    for device in (2, 3, 9, 10, 11):
        mixtures = [FedAMP().message(state, device)["weights"].vector for state in (one, other)]
        np.testing.assert_array_equal(*mixtures)
