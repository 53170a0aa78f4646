"""kNN-Per against plain numpy: nearest examples mixed with the global model's probabilities."""

from dataclasses import replace
from math import exp, log
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.base import ServerState
from odt_sim.strategies.clusters.knn_per import KNNPer, Memory, _nearest

NEIGHBOURS = 3


def recalled(x: Any, train_x: Any, train_y: Any) -> Any:
    """The probabilities of an example from its nearest neighbours."""
    ranked = sorted((float(np.linalg.norm(x - other)), label) for other, label in zip(train_x, train_y, strict=True))
    votes = np.zeros(10)
    for distance, label in ranked[:NEIGHBOURS]:
        votes[label] += exp(-distance)
    return votes / votes.sum()


def loss(twin: Any, w: Any, device: int, split: str, share: float) -> float:
    """The mean cross entropy of the mixture; probabilities are at least float64's smallest."""
    (x, y), (train_x, train_y) = (twin.part(part, device) for part in (split, "train"))
    own = np.array([recalled(row, train_x, train_y) for row in x])
    mixed = share * own + (1 - share) * twin.at(w)._probabilities(x)
    return float(np.mean([-log(max(p[label], np.finfo(float).tiny)) for p, label in zip(mixed, y, strict=True)]))


def test_agrees_with_numpy(twin: Any, softmax_with_embedding: TrainableModel) -> None:
    run = twin.run(KNNPer(NEIGHBOURS), softmax_with_embedding)
    w = twin.initial
    for round in range(1, run.rounds + 1):
        w = twin.mean([twin.descend(w, device, round) for device in range(3)])
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    for device, row in enumerate(run.rows):
        losses = [loss(twin, w, device, "validation", share / 10) for share in range(11)]
        share = int(np.argmin(losses)) / 10
        assert row["neighbour_share"] == share
        assert row["loss"] == pytest.approx(loss(twin, w, device, "test", share), abs=1e-5)
        assert row["global_loss"] == pytest.approx(twin.loss(twin.at(w), device), abs=1e-5)
    assert any(0 < row["neighbour_share"] < 1 for row in run.rows)


def test_deployed_outputs_are_evaluated(twin: Any, softmax_with_embedding: TrainableModel) -> None:
    run = twin.run(KNNPer(NEIGHBOURS), softmax_with_embedding)
    for row in run.rows:
        device = run.device(row["device"])
        device.restore(run.strategy.deploy(device, run.broadcast))
        x, y = device.test_examples.take()
        right = device.infer(x).argmax(axis=1) == y
        assert right.mean() == row["accuracy"]


def test_no_validation_examples_equals_fedavg(twin: Any, softmax_with_embedding: TrainableModel) -> None:
    data = twin.without_validation(0, 1, 2)
    plain = twin.run(FedAvg(), softmax_with_embedding, data)
    with pytest.warns(
        UserWarning, match=r"strategy knn_per: makes choices on validation examples, but no device has any"
    ):
        run = twin.run(KNNPer(), softmax_with_embedding, data)
    assert run.rows == [{**row, "neighbour_share": 0.0} for row in plain.rows]


def test_regressed_values_are_mixed() -> None:
    """Two neighbours at distances 0 and 1 with values 1 and 3, at a share of one half with 5."""
    memory = Memory(np.array([[0.0], [1], [9]]), np.array([[1.0], [3], [99]]), 2, 0.5, "mean_squared_error", True)
    own = (1 + 3 * exp(-1)) / (1 + exp(-1))
    np.testing.assert_allclose(memory(np.zeros((1, 1), np.float32), np.array([[5.0]], np.float32)), [[(own + 5) / 2]])


def test_distant_neighbours_count() -> None:
    """Where exp(-distance) underflows, the nearest decides; more neighbours than examples means all."""
    memory = Memory(np.array([[0.0], [1]]), np.eye(2), 10, 1.0, "sparse_categorical_crossentropy", False)
    outputs = memory(np.array([[1e4]], np.float32), np.zeros((1, 2), np.float32))
    np.testing.assert_allclose(outputs, [[1 / (1 + exp(1)), exp(1) / (1 + exp(1))]])


@pytest.mark.parametrize("count", [1, 3, 8, 9, 20])
@pytest.mark.parametrize("digits", [0, 1, 9])  # few digits make ties
def test_nearest_are_those_of_a_stable_sort(count: int, digits: int) -> None:
    distances = np.random.default_rng(0).random((50, 9)).round(digits)
    expected = np.argsort(distances, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(_nearest(distances, count), expected)


def test_memory_uses_the_deployed_body(grouped: TrainableModel, small_data: FederatedData) -> None:
    """Training examples are embedded by the deployed model."""
    strategy = KNNPer()
    index = [small_data.train(0), small_data.validation(0)]
    device = Device(grouped, *((small_data.x[i], small_data.y[i]) for i in index))
    state: ServerState = strategy.init(device.parameters())
    shares = []
    for factor in (1.0, -3.0):
        strategy.deploy(device, {"weights": factor * state.weights})
        shares.append(device.embedded("train").x)
    assert not np.allclose(*shares)


def test_needs(digits_mlp: TrainableModel, softmax_with_embedding: TrainableModel) -> None:
    with pytest.raises(StrategyError, match="strategy knn_per: needs embed, which the model digits_mlp lacks"):
        KNNPer().check(digits_mlp)
    other = replace(softmax_with_embedding, loss="kl_divergence")
    with pytest.raises(StrategyError, match=r"mixes class probabilities .* with loss kl_divergence; choose another"):
        KNNPer().check(other)
    with pytest.raises(
        ConfigurationError, match=r"strategy\.neighbours: expected a whole number of at least 1, found 0"
    ):
        KNNPer(0)
