"""IFCA against plain numpy: models from clusters of updates, chosen by training loss."""

from typing import Any

import numpy as np
import pytest

from odt_sim import Device, Fleet, TrainableModel, Weights
from odt_sim.data.devices.drift import label_permutation
from odt_sim.data.devices.federated import FederatedData
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.clusters.ifca import IFCA, clustered


@pytest.fixture
def alike() -> FederatedData:
    """Eight devices with digit-shaped examples and one labelling rule."""
    x = np.random.default_rng(2).normal(size=(480, 8, 8, 1)).astype(np.float32)
    x.reshape(480, 64)[:, 10:] /= 10
    y = x.reshape(480, 64)[:, :10].argmax(axis=1).astype(np.int32)
    offsets = 60 * np.arange(8)[:, np.newaxis] + [0, 50, 55, 60]
    return FederatedData("alike", x, y, 10, np.arange(480), offsets)


def choice(twin: Any, models: Any, device: int) -> int:
    return int(np.argmin([twin.loss(twin.at(w), device, "train") for w in models]))


def cut(vectors: Any, clusters: int) -> Any:
    """Textbook k-means of directions, seeded by the least similar rows."""
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    means = [rows[np.argmin(rows @ rows.sum(axis=0))]]
    while len(means) < clusters:
        means.append(rows[np.argmin(np.max(rows @ np.transpose(means), axis=1))])
    for _ in range(10):
        labels = np.argmin([((rows - mean) ** 2).sum(axis=1) for mean in means], axis=0)
        means = [rows[labels == c].mean(axis=0) if (labels == c).any() else means[c] for c in range(clusters)]
    return labels


def test_agrees_with_numpy(twin: Any) -> None:
    """One warm-up round, one round of the split, and two rounds of choice."""
    run = twin.run(IFCA(clusters=2, warm_up_rounds=1), rounds=4)
    sizes = twin.data.train_sizes
    models = [twin.initial]
    for round in range(1, run.rounds + 1):
        chosen = [choice(twin, models, device) for device in range(3)]
        trained = [twin.descend(models[chosen[device]], device, round) for device in range(3)]
        if round == 2:
            chosen, models = cut(np.array(trained) - models[0], 2).tolist(), models * 2
        for cluster in set(chosen):
            members = [device for device in range(3) if chosen[device] == cluster]
            models[cluster] = np.average([trained[d] for d in members], axis=0, weights=sizes[members])
    for cluster, w in enumerate(models):
        np.testing.assert_allclose(run.broadcast[f"weights.{cluster}"].vector, w, rtol=0, atol=1e-5)
    chosen = [choice(twin, models, device) for device in range(3)]
    assert [row["cluster"] for row in run.rows] == chosen
    assert set(chosen) == {0, 1}
    twin.assert_rows(run.rows, [models[cluster] for cluster in chosen])


def test_groups_with_permuted_labels_are_separated(twin: Any, alike: FederatedData) -> None:
    """Eight devices in two groups, one with permuted labels; two devices are unseen."""
    permuted = label_permutation(alike, 0, groups=2)
    run = twin.run(IFCA(clusters=2), data=permuted, rounds=5, fleet=Fleet(unseen=2))
    groups = [int((permuted.y[permuted.train(i)] != alike.y[alike.train(i)]).any()) for i in range(8)]
    clusters = [row["cluster"] for row in run.rows]
    assert sum(groups) == 4
    assert clusters in (groups, [1 - group for group in groups])


@pytest.mark.parametrize(
    ("rows", "clusters", "labels"),
    [
        ([[1, 0], [0, 3], [5, 0.1], [0.1, 1]], 2, [[0, 1, 0, 1], [1, 0, 1, 0]]),
        ([[2, 0]], 3, [[0]]),
        ([[1, 0], [1, 0], [1, 0]], 2, [[0, 0, 0]]),
        ([[0, 0], [1, 0], [-1, 0]], 1, [[0, 0, 0]]),
    ],
)
def test_clusters_of_directions(rows: Any, clusters: int, labels: Any) -> None:
    assert clustered(np.array(rows, np.float32), clusters).tolist() in labels


def test_one_cluster_is_fedavg(small_twin: Any, grouped: TrainableModel) -> None:
    run, plain = small_twin.run(IFCA(clusters=1), grouped), small_twin.run(FedAvg(), grouped)
    np.testing.assert_array_equal(run.broadcast["weights.0"].vector, plain.weights.vector)
    assert [row["loss"] for row in run.rows] == [row["loss"] for row in plain.rows]


def test_empty_cluster_keeps_the_previous_model(twin: Any) -> None:
    run = twin.run(IFCA(clusters=3, warm_up_rounds=0), rounds=1, fleet=Fleet(cohort=1))
    initial = run.device(0).parameters().vector
    same = [np.array_equal(run.broadcast[f"weights.{cluster}"].vector, initial) for cluster in range(3)]
    assert same == [False, True, True]


def test_all_models_go_down_and_one_up(twin: Any, softmax: TrainableModel) -> None:
    """One model in the warm-up and in the round of the split, two in the next round."""
    run = twin.run(IFCA(clusters=2), rounds=3)
    size = softmax.layout.size * 4
    assert [record["bytes_down"] for record in run.records] == [3 * size, 3 * size, 3 * 2 * size]
    assert [record["bytes_up"] for record in run.records] == [3 * (size + 4)] * 3


def test_unseen_device_chooses_by_training_loss(twin: Any) -> None:
    run = twin.run(IFCA(), fleet=Fleet(unseen=1))
    unseen = run.unseen
    models = [run.broadcast[f"weights.{cluster}"].vector.astype(np.float64) for cluster in range(2)]
    assert run.rows[unseen]["cluster"] == choice(twin, models, unseen)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_diverged_model_is_not_chosen(softmax: TrainableModel, data: FederatedData) -> None:
    """Its outputs are infinite and its loss is NaN."""
    device = Device(softmax, (data.x, data.y))
    initial = device.parameters()
    models = {"weights.0": initial, "weights.1": Weights(initial.layout, np.full_like(initial.vector, 1e38))}
    for broadcast in (models, dict(zip(models, reversed(models.values()), strict=True))):
        np.testing.assert_array_equal(IFCA().deploy(device, broadcast).vector, initial.vector)
