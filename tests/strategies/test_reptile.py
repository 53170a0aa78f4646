"""Reptile against plain numpy: a scaled mean update, and fine-tuning."""

from typing import Any

import numpy as np

from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.meta.reptile import Reptile


def test_agrees_with_numpy(twin: Any) -> None:
    run = twin.run(Reptile(max_epochs=4, server_learning_rate=0.3))
    w = twin.initial
    for round in range(1, run.rounds + 1):
        w = w + 0.3 * (twin.mean([twin.descend(w, device, round) for device in range(3)]) - w)
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    models = []
    for device in range(3):
        tuned = [twin.descend(w, device, run.rounds, range(epochs)) for epochs in range(5)]
        losses = [twin.loss(twin.at(model), device, "validation") for model in tuned]
        models.append(tuned[int(np.argmin(losses))])
        np.testing.assert_allclose(run.deployed(device).vector, models[-1], rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, models)


def test_server_learning_rate_one_equals_fedavg(twin: Any) -> None:
    whole, plain = (twin.run(strategy) for strategy in (Reptile(2, server_learning_rate=1.0), FedAvgFineTune(2)))
    np.testing.assert_array_equal(whole.weights.vector, plain.weights.vector)
    assert whole.rows == plain.rows


def test_defaults_differ_from_fine_tuned_fedavg() -> None:
    assert Reptile().server_learning_rate != 1
