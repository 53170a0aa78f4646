"""IFCA: clustered federated learning with one model per cluster.

Paper: Ghosh et al. 2020, An Efficient Framework for Clustered Federated Learning, algorithm 1 with model averaging;
Mansour et al. 2020, Three Approaches for Personalization, section 3 (HypCluster).
Rule: a device chooses the model with the smallest loss on its training examples and trains it; each model is averaged
over the devices that chose it. A device's user gets the model that the device would choose.
Travels: all models down (one during the warm-up), one up, BatchNorm statistics included.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg. The server stores all updates
of a round.
Deviations: devices are weighted by examples, as in FedAvg; the paper weights them equally (`weighting=uniform`). It
draws the initial models at random and restarts several times, since often all devices choose the same model. Here they
come from FedAvg: after `warm_up_rounds` with one model, the updates of the next round are clustered by k-means of their
directions (as Ghosh et al. 2019, Robust Federated Learning in a Heterogeneous Environment, cluster models), and each
cluster's mean becomes a model.
Unseen devices choose the model with the smallest loss on their training examples.
Hyper-parameters: `clusters`, 1..20, default 2; `warm_up_rounds`, 0..rounds, default 1. A CNN separates groups early:
with 20 devices in four groups (digits, iid, 30 rounds, seeds 0 to 2), all devices found their group under label
permutations, and 92 % under rotations. Without groups (Dirichlet), each of two clusters learns from half of the data:
validation accuracy 0.888, FedAvg 0.924, and 0.921 after a warm-up of 10 rounds. A linear model that starts at zero
first moves in similar directions on all devices: School's validation loss is 0.0114, and 0.0107 after a warm-up of 50
rounds.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.clusters.clustered import best_cluster, model_name, of_cluster
from odt_sim.strategies.state import moved, stepped, trained_by_gradients

ITERATIONS = 100
"""Maximum number of k-means iterations; they end earlier if no device changes its cluster."""


class IFCA(Strategy):
    """FedAvg with several models, from which each device chooses one.

    Attributes:
        clusters: Number of clusters, at least 1.
        warm_up_rounds: Rounds with one model for all devices.
    """

    keeps_updates = True
    asynchronous = False
    clusters: int = count(2, 1, search="int(interval(2,5))")
    warm_up_rounds: int = count(1)

    def init(self, initial: Weights) -> ServerState:
        """Return the exported weights as the only model."""
        return ServerState({model_name(0): super().init(initial).weights}, {"rounds": np.zeros(1)})

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the model of the device's cluster."""
        cluster = best_cluster(device, broadcast)
        update = super().local(device, {"weights": broadcast[model_name(cluster)]})
        tensors = {model_name(cluster): update.tensors["weights"], _share(cluster): np.ones(1, np.float32)}
        return Update(tensors, update.weight, update.losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Average each model over its devices, or split the single model after the warm-up."""
        rounds = array_of(state.private["rounds"]) + 1
        warm = len(state.broadcast) == self.clusters or rounds[0] <= self.warm_up_rounds
        models = self._averaged(state.broadcast, updates) if warm else self._cut(state.broadcast, updates.each)
        return ServerState(models, {"rounds": rounds})

    def _averaged(self, models: Tensors, updates: Updates) -> Tensors:
        """Return the models after a round; means over all devices are divided by the share that chose the model."""
        after = dict(models)
        for cluster in range(len(models)):
            name = model_name(cluster)
            if name in updates.mean:
                share = float(array_of(updates.mean[_share(cluster)])[0])
                change = weights_of(updates.mean, name) / share
                after[name] = stepped(weights_of(models, name), change, self.server_learning_rate)
        return after

    def _cut(self, broadcast: Tensors, each: Mapping[int, Update]) -> Tensors:
        """Return the mean model of each cluster of updates; an empty cluster keeps the previous model."""
        shared = weights_of(broadcast, model_name(0))
        compared = trained_by_gradients(shared.layout)
        changes = [weights_of(update.tensors, model_name(0)) for update in each.values()]
        labels = clustered(np.stack([change.select(compared).vector for change in changes]), self.clusters)
        weights = np.array([update.weight for update in each.values()])
        models = {}
        for cluster in range(self.clusters):
            members = np.flatnonzero(labels == cluster)
            each_change = [changes[member] for member in members]
            models[model_name(cluster)] = moved(shared, each_change, weights[members], self.server_learning_rate)
        return models

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the model of the device's cluster."""
        return of_cluster(device, broadcast)


def clustered(vectors: NDArray[np.float32], clusters: int) -> NDArray[np.intp]:
    """Return the cluster of each row, `[rows]`, by k-means of the rows scaled to length 1.

    The first seed is the row least similar to all others; each further seed is the row least similar to the previous
    seeds. The result is deterministic.

    Args:
        vectors: `[rows, size]`.
        clusters: Number of clusters; some may remain empty.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    products = (rows @ rows.T).astype(np.float64)
    seeds = [int(products.sum(axis=1).argmin())]
    while len(seeds) < clusters:
        seeds.append(int(products[:, seeds].max(axis=1).argmin()))
    labels: NDArray[np.intp] = products[:, seeds].argmax(axis=1)
    for _ in range(ITERATIONS):
        members = np.eye(clusters)[labels]
        sizes = members.sum(axis=0)
        with_mean = products @ members / np.maximum(sizes, 1)
        squared_mean = (members * with_mean).sum(axis=0) / np.maximum(sizes, 1)
        after = np.where(sizes > 0, squared_mean - 2 * with_mean, np.inf).argmin(axis=1)
        if np.array_equal(after, labels):
            break
        labels = after
    return labels


def _share(cluster: int) -> str:
    return f"share.{cluster}"
