"""Ditto against plain numpy: a personal model near the global one."""

from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, Strategy, TrainableModel
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.two_models.ditto import Ditto
from odt_sim.strategies.two_models.interpolation import Interpolation

LAMBDA = 0.7


def test_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel) -> None:
    run = twin.run(Ditto(LAMBDA), softmax_either_way)
    w, own = twin.initial, [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        own = [twin.descend(v, device, round, extra=lambda v, w=w: LAMBDA * (v - w)) for device, v in enumerate(own)]
        w = twin.mean([twin.descend(w, device, round) for device in range(3)])
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    twin.assert_deployed(run, own)


def test_unseen_device_trains_a_model_near_the_global_one(twin: Any) -> None:
    run = twin.run(Ditto(LAMBDA, unseen_epochs=4), fleet=Fleet(unseen=1), rounds=1)
    unseen, w = run.unseen, run.weights.vector.astype(np.float64)
    v = twin.descend(w, unseen, run.rounds, range(4), extra=lambda v: LAMBDA * (v - w))
    np.testing.assert_allclose(run.deployed(unseen).vector, v, rtol=0, atol=1e-5)


@pytest.mark.parametrize("strategy", [Ditto(0.0), Ditto(LAMBDA), Interpolation()], ids=["free", "near", "mixed"])
def test_global_model_equals_fedavg(small_twin: Any, grouped: TrainableModel, strategy: Strategy) -> None:
    """Bit for bit, with Dropout and BatchNormalization."""
    run, plain = small_twin.run(strategy, grouped), small_twin.run(FedAvg(), grouped)
    np.testing.assert_array_equal(run.weights.vector, plain.weights.vector)
    assert [row["global_loss"] for row in run.rows] == [row["loss"] for row in plain.rows]


@pytest.mark.parametrize("name", ["grouped", "adam_with_offset"])
def test_zero_regularization_equals_local_training(small_twin: Any, name: str, request: pytest.FixtureRequest) -> None:
    """Bit for bit: same batches and masks, own statistics, and slots that persist from round to round."""
    model = request.getfixturevalue(name)
    run, alone = small_twin.run(Ditto(0.0), model), small_twin.run(Local(), model)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, alone.deployed(device).vector)
    assert [row["loss"] for row in run.rows] == [row["loss"] for row in alone.rows]
