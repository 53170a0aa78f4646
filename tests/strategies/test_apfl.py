"""APFL against plain numpy: two models and their mixing weight."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.two_models.apfl import APFL

Simulate = Callable[..., Any]
RATE, EPOCHS = 0.1, 2


def trained(
    twin: Any, w: Any, v: Any, alpha: float, device: int, round: int, epochs: range = range(EPOCHS)
) -> tuple[Any, Any, float]:
    for x, y in twin.batches(device, round, epochs):
        at_w, at_mixture = twin.gradient(w, x, y), twin.gradient(alpha * v + (1 - alpha) * w, x, y)
        w, v, alpha = (
            w - RATE * at_w,
            v - RATE * alpha * at_mixture,
            float(np.clip(alpha - RATE * (v - w) @ at_mixture, 0, 1)),
        )
    return w, v, alpha


def test_agrees_with_numpy(simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData) -> None:
    run = simulate(APFL(0.3), softmax, data)
    w, own = twin.initial, [(twin.initial, 0.3)] * 3
    for round in range(1, run.rounds + 1):
        results = [trained(twin, w, v, alpha, device, round) for device, (v, alpha) in enumerate(own)]
        w, own = twin.mean([result[0] for result in results]), [(v, alpha) for _, v, alpha in results]
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    models = [alpha * v + (1 - alpha) * w for v, alpha in own]
    for device, (model, (_, alpha)) in enumerate(zip(models, own, strict=True)):
        np.testing.assert_allclose(run.deployed(device).vector, model, rtol=0, atol=1e-5)
        assert run.rows[device]["alpha"] == pytest.approx(alpha, abs=1e-5)
        assert abs(alpha - 0.3) > 1e-3
    twin.assert_rows(run.rows, models)


def test_unseen_device_trains_a_model_and_its_weight(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(APFL(0.3, unseen_epochs=3), softmax, data, fleet=Fleet(unseen=1), rounds=1)
    unseen, w = unseen_of(run), run.weights.vector.astype(np.float64)
    _, v, alpha = trained(twin, w, w, 0.3, unseen, run.rounds, range(3))
    np.testing.assert_allclose(run.deployed(unseen).vector, alpha * v + (1 - alpha) * w, rtol=0, atol=1e-5)


@pytest.mark.parametrize("alpha", [0, 0.5])
def test_global_model_equals_fedavg(
    simulate: Simulate, digits_mlp: TrainableModel, data: FederatedData, alpha: float
) -> None:
    run, plain = simulate(APFL(alpha), digits_mlp, data), simulate(FedAvg(), digits_mlp, data)
    np.testing.assert_array_equal(run.weights.vector, plain.weights.vector)


def test_statistics_come_from_the_mixture(
    simulate: Simulate, grouped: TrainableModel, small_data: FederatedData
) -> None:
    run = simulate(APFL(), grouped, small_data, rounds=2)
    statistics = grouped.layout.select(lambda p: p.role == "statistic")
    for device in range(3):
        own = run.device(device).state["own"].select(statistics).vector
        np.testing.assert_array_equal(run.deployed(device).select(statistics).vector, own)
        assert not np.array_equal(own, run.weights.select(statistics).vector)


def test_needs_plain_sgd(adam: TrainableModel) -> None:
    with pytest.raises(StrategyError, match="strategy apfl: needs plain_sgd, which the model adam lacks"):
        APFL().check(adam)


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_alpha_out_of_range(alpha: float) -> None:
    with pytest.raises(
        ConfigurationError, match=r"strategy\.alpha: expected a number of at least 0 and at most 1, found "
    ):
        APFL(alpha)
