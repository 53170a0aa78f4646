"""APFL against plain numpy: two models and their mixing weight."""

from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.two_models.apfl import APFL

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


def test_agrees_with_numpy(twin: Any) -> None:
    run = twin.run(APFL(0.3))
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


def test_unseen_device_trains_a_model_and_its_weight(twin: Any) -> None:
    run = twin.run(APFL(0.3, unseen_epochs=3), fleet=Fleet(unseen=1), rounds=1)
    unseen, w = run.unseen, run.weights.vector.astype(np.float64)
    _, v, alpha = trained(twin, w, w, 0.3, unseen, run.rounds, range(3))
    np.testing.assert_allclose(run.deployed(unseen).vector, alpha * v + (1 - alpha) * w, rtol=0, atol=1e-5)


@pytest.mark.parametrize("alpha", [0, 0.5])
def test_global_model_equals_fedavg(twin: Any, digits_mlp: TrainableModel, alpha: float) -> None:
    run, plain = twin.run(APFL(alpha), digits_mlp), twin.run(FedAvg(), digits_mlp)
    np.testing.assert_array_equal(run.weights.vector, plain.weights.vector)


def test_statistics_come_from_the_mixture(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(APFL(), grouped, rounds=2)
    statistics = grouped.layout.select(lambda p: p.role == "statistic")
    for device in range(3):
        own = run.device(device).state["own"].select(statistics).vector
        np.testing.assert_array_equal(run.deployed(device).select(statistics).vector, own)
        assert not np.array_equal(own, run.weights.select(statistics).vector)
