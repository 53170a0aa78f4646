"""Fine-tuning: against plain numpy; its epochs are chosen on validation examples and on nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from odt_sim import TrainableModel
from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.fedper import FedPer

Simulate = Callable[..., Any]
MAX_EPOCHS = 6


def test_agrees_with_numpy(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, numpy_softmax: Any
) -> None:
    run = simulate(FedAvgFineTune(MAX_EPOCHS), softmax, data)
    chosen, models = [], []
    for device in range(3):
        tuned = [numpy_softmax.of(*run.weights.tensors())]
        for epoch in range(MAX_EPOCHS):
            tuned.append(tuned[-1].copy())
            twin.train(tuned[-1], device, run.rounds, [epoch])
        losses = [twin.loss(model, device, "validation") for model in tuned]
        chosen.append(int(np.argmin(losses)))
        models.append(tuned[chosen[-1]])
    assert [row["fine_tune_epochs"] for row in run.rows] == chosen
    assert any(chosen)
    twin.assert_rows(run.rows, models)
    for device, model in enumerate(models):
        np.testing.assert_allclose(run.deployed(device).tensors()[0], model.kernel, rtol=0, atol=1e-5)


def test_training_itself_is_fedavg(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    tuned, plain = simulate(FedAvgFineTune(2), softmax, data), simulate(FedAvg(), softmax, data)
    np.testing.assert_array_equal(tuned.weights.vector, plain.weights.vector)
    assert [row["global_loss"] for row in tuned.rows] == [row["loss"] for row in plain.rows]


def test_without_epochs_it_is_fedavg(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    tuned, plain = simulate(FedAvgFineTune(0), softmax, data), simulate(FedAvg(), softmax, data)
    assert tuned.rows == [{**row, "fine_tune_epochs": 0} for row in plain.rows]


def test_test_examples_decide_nothing(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    """Other test labels, the same choice and the same weights; other validation labels, another choice."""
    run = simulate(FedAvgFineTune(MAX_EPOCHS), softmax, data)
    for split, same in (("test", True), ("validation", False)):
        y = data.y.copy()
        for device in range(3):
            index = getattr(data, split)(device)
            y[index] = (y[index] + 1) % 10
        other = simulate(FedAvgFineTune(MAX_EPOCHS), softmax, replace(data, y=y))
        np.testing.assert_array_equal(other.weights.vector, run.weights.vector)
        pairs = [(a["fine_tune_epochs"], b["fine_tune_epochs"]) for a, b in zip(run.rows, other.rows, strict=True)]
        assert all(a == b for a, b in pairs) is same
        if same:
            for device in range(3):
                np.testing.assert_array_equal(other.deployed(device).vector, run.deployed(device).vector)


def test_without_validation_examples_the_global_weights_stay(
    simulate: Simulate, softmax: TrainableModel, data: FederatedData
) -> None:
    offsets = data.offsets.copy()
    offsets[1, 1] = offsets[1, 2]  # its validation examples become training examples
    run = simulate(FedAvgFineTune(MAX_EPOCHS), softmax, replace(data, offsets=offsets))
    assert run.rows[1]["fine_tune_epochs"] == 0
    np.testing.assert_array_equal(run.deployed(1).vector, run.weights.vector)


def test_what_stays_on_a_device_is_fine_tuned_too(
    simulate: Simulate, split_softmax: TrainableModel, data: FederatedData
) -> None:
    """The base class may be composed with a narrower choice of what travels."""

    class FineTunedFedPer(FedAvgFineTune, FedPer):
        pass

    run = simulate(FineTunedFedPer(0), split_softmax, data)
    plain = simulate(FedPer(), split_softmax, data)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, plain.deployed(device).vector)


def test_epochs_out_of_range() -> None:
    with pytest.raises(ConfigurationError, match=r"strategy\.max_epochs: expected at least 0, found -1"):
        FedAvgFineTune(-1)
