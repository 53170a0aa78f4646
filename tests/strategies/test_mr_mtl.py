"""MR-MTL against plain numpy: personal models near their mean."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.strategies.averaging.fedprox import FedProx
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.two_models.mr_mtl import MRMTL

Simulate = Callable[..., Any]
LAMBDA = 0.7


def test_agrees_with_numpy(
    simulate: Simulate, twin: Any, softmax_either_way: TrainableModel, data: FederatedData
) -> None:
    run = simulate(MRMTL(LAMBDA), softmax_either_way, data)
    mean, own = twin.initial, [twin.initial] * 3
    for round in range(1, run.rounds + 1):
        own = [twin.descend(w, d, round, extra=lambda w, mean=mean: LAMBDA * (w - mean)) for d, w in enumerate(own)]
        mean = twin.mean(own)
    np.testing.assert_allclose(run.weights.vector, mean, rtol=0, atol=1e-5)
    for device, w in enumerate(own):
        np.testing.assert_allclose(run.deployed(device).vector, w, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, own)


def test_cohort_mean_replaces_the_previous_mean(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: Any
) -> None:
    """With one device a round, w is that device's model."""
    run = simulate(MRMTL(LAMBDA), softmax, data, fleet=Fleet(cohort=1))
    (version,) = run.commit.versions.written(run.rounds)
    (last,) = (id for id, each in run.commit.versions.of(range(3)).items() if each == version)
    np.testing.assert_allclose(run.deployed(last).vector, run.weights.vector, rtol=0, atol=1e-6)


def test_unseen_device_trains_a_model_near_the_mean(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(MRMTL(LAMBDA, unseen_epochs=4), softmax, data, fleet=Fleet(unseen=1), rounds=1)
    unseen, mean = unseen_of(run), run.weights.vector.astype(np.float64)
    w = twin.descend(mean, unseen, run.rounds, range(4), extra=lambda w: LAMBDA * (w - mean))
    np.testing.assert_allclose(run.deployed(unseen).vector, w, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["grouped", "adam_with_offset"])
def test_zero_regularization_equals_local_training(
    simulate: Simulate, small_data: FederatedData, name: str, request: pytest.FixtureRequest
) -> None:
    """Bit for bit: same batches and masks, own statistics, and slots that persist from round to round."""
    model = request.getfixturevalue(name)
    run, alone = simulate(MRMTL(0.0), model, small_data), simulate(Local(), model, small_data)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, alone.deployed(device).vector)
    assert [row["loss"] for row in run.rows] == [row["loss"] for row in alone.rows]


def test_one_round_equals_fedprox(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    """Bit for bit: all models start at w, so they differ from the second round on."""
    run, proximal = (simulate(strategy, softmax, data, rounds=1) for strategy in (MRMTL(LAMBDA), FedProx(LAMBDA)))
    np.testing.assert_array_equal(run.weights.vector, proximal.weights.vector)


def test_needs_a_gradient_offset(adam: TrainableModel) -> None:
    with pytest.raises(StrategyError, match="strategy mr_mtl: needs gradient_offset, which the model adam lacks"):
        MRMTL().check(adam)


@pytest.mark.parametrize("factor", [-0.1, float("inf"), "1"])
def test_regularization_out_of_range(factor: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"strategy\.regularization: expected a number of at least 0, found "):
        MRMTL(factor)
