"""Clustered federated learning against plain numpy: clusters are split where updates conflict."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim import ServerState, TrainableModel, Update, Updates, Weights
from odt_sim.model.tensors import array_of
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.clusters.clustered import Clustered, bipartition


def split(changes: Any, sizes: Any, mean_norm: float, similarity: float) -> Any:
    """Return the best of all partitions in two, or None if the updates do not conflict."""
    norms = np.linalg.norm(changes, axis=1)
    if len(changes) < 3 or np.linalg.norm(np.average(changes, axis=0, weights=sizes)) >= mean_norm * norms.max():
        return None
    rows = changes / norms[:, np.newaxis]
    apart, across = best_partition(rows @ rows.T)
    return apart if across < similarity else None


def best_partition(similarities: Any) -> Any:
    """Try all partitions that leave the first row in the first part."""
    parts = [np.array([0, *rest]) for rest in product([0, 1], repeat=len(similarities) - 1) if any(rest)]
    across = [similarities[part == 0][:, part == 1].max() for part in parts]
    return parts[int(np.argmin(across))] == 1, min(across)


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_bipartition_is_the_best_of_all(rows: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(rows, 3))
    similarities = vectors @ vectors.T
    apart, across = bipartition(similarities)
    expected, least = best_partition(similarities)
    assert across == pytest.approx(least)
    assert apart.tolist() == expected.tolist()


def test_agrees_with_numpy(twin: Any) -> None:
    """Three devices are split into two and one; each cluster then trains its own model."""
    run = twin.run(Clustered(mean_norm=1.0, similarity=0.9), rounds=4)
    models, clusters = [twin.initial], np.zeros(3, int)
    for round in range(1, run.rounds + 1):
        changes = np.array([twin.descend(models[c], d, round) - models[c] for d, c in enumerate(clusters)])
        for cluster in range(len(models)):
            members = np.flatnonzero(clusters == cluster)
            apart = split(changes[members], twin.data.train_sizes[members], 1.0, 0.9)
            if apart is not None:
                clusters[members[apart]] = len(models)
                models.append(models[cluster])
        for cluster in set(clusters):
            members = np.flatnonzero(clusters == cluster)
            mean = np.average(changes[members], axis=0, weights=twin.data.train_sizes[members])
            models[cluster] = models[cluster] + mean
    assert len(models) == 2
    for cluster, w in enumerate(models):
        np.testing.assert_allclose(run.broadcast[f"weights.{cluster}"].vector, w, rtol=0, atol=1e-5)
    assert [row["cluster"] for row in run.rows] == clusters.tolist()
    twin.assert_rows(run.rows, [models[cluster] for cluster in clusters])


def test_device_without_a_cluster_chooses_by_its_training_loss(twin: Any) -> None:
    strategy = Clustered(mean_norm=1.0, similarity=0.9)
    run = twin.run(strategy, rounds=2)
    state, device = run.commit.state, run.device(0)
    assert strategy.message(state, 3) == state.broadcast
    losses = []
    for cluster in range(2):
        device.restore(run.broadcast[f"weights.{cluster}"])
        losses.append(device.loss("train"))
    found = strategy.deploy(run.device(0), strategy.message(state, 3))
    np.testing.assert_array_equal(found.vector, run.broadcast[f"weights.{int(np.argmin(losses))}"].vector)


def test_split_keeps_the_clusters_of_its_devices_only(softmax: TrainableModel) -> None:
    """Devices 1 and 5 conflict with 3; 4 was away, and 7 and 8 are another cluster."""
    strategy, layout = Clustered(), softmax.layout
    known = Weights(layout, np.ones(layout.size, np.float32))
    members = np.array([[1, 0], [3, 0], [4, 0], [5, 0], [7, 1], [8, 1]])
    state = ServerState({"weights.0": known, "weights.1": 5 * known}, {"members": members})
    sent = {1: (0, 1.0), 3: (0, -2.0), 5: (0, 1.0), 7: (1, 3.0)}
    each = {
        id: Update({"weights": step * known, "cluster": np.array([cluster])}, 1.0, np.ones(1, np.float32))
        for id, (cluster, step) in sent.items()
    }
    after = strategy.aggregate(state, Updates({}, 4.0, 4, 9, each))
    assert after.private["members"].tolist() == [[1, 0], [3, 2], [5, 0], [7, 1], [8, 1]]
    assert {name: float(array_of(model)[0]) for name, model in after.broadcast.items()} == {
        "weights.0": 2.0,
        "weights.1": 8.0,
        "weights.2": -1.0,
    }
    assert strategy.message(after, 3) == {"weights.2": after.broadcast["weights.2"]}
    assert strategy.message(after, 4) == after.broadcast


def test_agreeing_devices_train_as_fedavg(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(Clustered(similarity=-1.0), grouped)
    plain = small_twin.run(FedAvg(), grouped)
    np.testing.assert_allclose(run.broadcast["weights.0"].vector, plain.weights.vector, rtol=0, atol=1e-6)
    assert {row["cluster"] for row in run.rows} == {0}
