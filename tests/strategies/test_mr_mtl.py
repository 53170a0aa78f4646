"""MR-MTL against plain numpy: personal models near their mean."""

from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.averaging.fedprox import FedProx
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.two_models.mr_mtl import MRMTL

LAMBDA = 0.7


def test_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel) -> None:
    run = twin.run(MRMTL(LAMBDA), softmax_either_way)
    mean, own = twin.initial, [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        own = [twin.descend(w, d, round, extra=lambda w, mean=mean: LAMBDA * (w - mean)) for d, w in enumerate(own)]
        mean = twin.mean(own)
    np.testing.assert_allclose(run.weights.vector, mean, rtol=0, atol=1e-5)
    twin.assert_deployed(run, own)


def test_cohort_mean_replaces_the_previous_mean(twin: Any) -> None:
    """With one device a round, w is that device's model."""
    run = twin.run(MRMTL(LAMBDA), fleet=Fleet(cohort=1))
    (version,) = run.commit.versions.written(run.rounds)
    (last,) = (id for id, each in run.commit.versions.of(range(3)).items() if each == version)
    np.testing.assert_allclose(run.deployed(last).vector, run.weights.vector, rtol=0, atol=1e-6)


def test_unseen_device_trains_a_model_near_the_mean(twin: Any) -> None:
    run = twin.run(MRMTL(LAMBDA, unseen_epochs=4), fleet=Fleet(unseen=1), rounds=1)
    unseen, mean = run.unseen, run.weights.vector.astype(np.float64)
    w = twin.descend(mean, unseen, run.rounds, range(4), extra=lambda w: LAMBDA * (w - mean))
    np.testing.assert_allclose(run.deployed(unseen).vector, w, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["grouped", "adam_with_offset"])
def test_zero_regularization_equals_local_training(small_twin: Any, name: str, request: pytest.FixtureRequest) -> None:
    """Bit for bit: same batches and masks, own statistics, and slots that persist from round to round."""
    model = request.getfixturevalue(name)
    run, alone = small_twin.run(MRMTL(0.0), model), small_twin.run(Local(), model)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, alone.deployed(device).vector)
    assert [row["loss"] for row in run.rows] == [row["loss"] for row in alone.rows]


def test_one_round_equals_fedprox(twin: Any) -> None:
    """Bit for bit: all models start at w, so they differ from the second round on."""
    run, proximal = (twin.run(strategy, rounds=1) for strategy in (MRMTL(LAMBDA), FedProx(LAMBDA)))
    np.testing.assert_array_equal(run.weights.vector, proximal.weights.vector)
