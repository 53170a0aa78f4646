"""FedBABU against plain numpy: the body under a fixed head, then fine-tuning of all layers or the head."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odt_sim import TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.strategies.shared_parts.fedbabu import FedBABU

Simulate = Callable[..., Any]
RATE, TUNING = 0.1, 3


@pytest.mark.parametrize("fine_tune", ["all", "head"])
def test_agrees_with_numpy(
    simulate: Simulate, small_twin: Any, small_mlp: TrainableModel, small_data: FederatedData, fine_tune: str
) -> None:
    twin, head = small_twin, small_twin.model.head
    body = slice(0, head.start)
    run = simulate(FedBABU(TUNING, fine_tune), small_mlp, small_data)
    w = twin.initial
    for round in range(1, run.rounds + 1):
        models = [w.copy() for _ in range(3)]
        for device, own in enumerate(models):
            for x, y in twin.batches(device, round):
                own[body] -= RATE * twin.gradient(own, x, y)[body]
        w = twin.mean(models)
    np.testing.assert_array_equal(w[head], twin.initial[head])
    np.testing.assert_allclose(run.weights.vector, w[body], rtol=0, atol=1e-5)
    models = [w.copy() for _ in range(3)]
    for device, own in enumerate(models):
        for x, y in twin.batches(device, run.rounds, range(TUNING)):
            part = head if fine_tune == "head" else slice(None)
            own[part] -= RATE * twin.gradient(own, x, y)[part]
        np.testing.assert_allclose(run.deployed(device).vector, own, rtol=0, atol=1e-5)
        assert run.device(device).state == {}
    twin.assert_rows(run.rows, models)


def test_needs_train_body(
    digits_mlp: TrainableModel, grouped: TrainableModel, frozen: TrainableModel, small_mlp: TrainableModel
) -> None:
    for model in (grouped, small_mlp):
        FedBABU(fine_tune="head").check(model)
    with pytest.raises(StrategyError, match="strategy fedbabu: needs train_body, which the model digits_mlp lacks"):
        FedBABU().check(digits_mlp)
    with pytest.raises(StrategyError, match="strategy fedbabu: needs train_body, train_head, which the model digits"):
        FedBABU(fine_tune="head").check(digits_mlp)
    with pytest.raises(StrategyError, match="strategy fedbabu: needs train_body, which the model frozen lacks"):
        FedBABU().check(frozen)


def test_settings_out_of_range() -> None:
    with pytest.raises(ConfigurationError, match=r"strategy\.fine_tune: expected all or head, found 'body'"):
        FedBABU(fine_tune="body")
    with pytest.raises(ConfigurationError, match=r"strategy\.fine_tune_epochs: expected a whole number"):
        FedBABU(-1)
