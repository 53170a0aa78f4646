"""Clustered federated learning: clusters of devices are split in two where their updates conflict.

Paper: Sattler et al. 2020, Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization under Privacy
Constraints, algorithm 4 with the optimal bipartition of algorithm 1.
Rule: each cluster trains a model by FedAvg. After a round, a cluster of more than two devices may be split into two
parts, chosen to minimize the largest cosine similarity of updates across them. It is split if its mean update is short
(its norm below `mean_norm` times the largest norm of an update) and the parts conflict (that similarity below
`similarity`). Both parts continue from the cluster's model. A device's user gets the model of its cluster.
Travels: one model down and one up, BatchNorm statistics included; similarities ignore the statistics. A device without
a cluster receives all models.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg. The server keeps a model of
each cluster and the cluster of each device, and stores all updates of a round.
Deviations: devices are weighted by examples; the paper weights them equally (`weighting=uniform`). The paper splits a
cluster if the mean update's norm is below one threshold and the largest norm above another, 0.4 and 1.6 in the authors'
program; these depend on the model, the learning rate and the number of steps, unlike the ratio used here. `similarity`
is `1 - 2 g^2` for the paper's bound g on the relative noise of updates, 0.65 by default.
Unseen devices, and those that were in no cohort since their cluster was split, choose the model with the smallest loss on
their training examples, as in IFCA; the paper compares their updates at the model of each split.
Hyper-parameters: `mean_norm`, above 0 to 1, default 0.6; `similarity`, -1..1, default 0.15; both chosen on three tasks
(docs/evaluation.md). On 20 devices in four groups (digits, 40 rounds, seed 0), `digits_mlp` forms nine clusters:
accuracy 0.844 under label permutations, FedAvg 0.309; 0.837 under rotations, FedAvg 0.733. Without groups (iid, and
Dirichlet 0.3), no cluster is split. The CNN's updates are noisier: five clusters and accuracy 0.490 under permutations;
under Dirichlet 0.3, twelve clusters reach 0.944, FedAvg 0.897.
"""

from collections.abc import Mapping, Set

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import moved, receive, trained_by_gradients

CLUSTER, MEMBERS = "cluster", "members"
SMALLEST = 3
"""Smallest cluster that is split; two devices stay together, since each has no other to learn from."""


def model_name(cluster: int) -> str:
    """Return the name of a cluster's model in the broadcast."""
    return f"weights.{cluster}"


def best_cluster(device: Device, models: Tensors) -> int:
    """Return the cluster whose model has the smallest loss on the training examples; diverged models rank last.

    Args:
        device: The device; with more than one model, its weights are those of the last model afterwards.
        models: Models by `model_name`.
    """
    clusters = sorted(int(name.rpartition(".")[2]) for name in models)
    if len(clusters) == 1:
        return clusters[0]
    losses = []
    for cluster in clusters:
        device.restore(weights_of(models, model_name(cluster)))
        losses.append(device.loss("train"))
    return clusters[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]  # argmin treats NaN as the smallest


def of_cluster(device: Device, models: Tensors) -> Weights:
    """Return the model of the device's cluster, and record the cluster's number.

    Args:
        device: The device.
        models: Models by `model_name`.
    """
    cluster = best_cluster(device, models)
    device.records["cluster"] = cluster
    return receive(device, {"weights": models[model_name(cluster)]})


class Clustered(Strategy):
    """FedAvg within clusters, which are split where updates conflict.

    Attributes:
        mean_norm: Norm of the mean update below which a cluster may be split, relative to the largest norm of an
            update.
        similarity: Largest cosine similarity of two updates in different parts, below which a cluster may be split.
    """

    keeps_updates = True
    asynchronous = False
    mean_norm: float = number(0.6, 0, 1, above=True, search="interval(0.1,0.9)")
    similarity: float = number(0.15, -1, 1, search="interval(0,0.4)")

    def init(self, initial: Weights) -> ServerState:
        """Return the exported weights as the only cluster's model."""
        return ServerState({model_name(0): super().init(initial).weights}, {MEMBERS: _table({})})

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return the model of the device's cluster, or all models if it has no cluster."""
        cluster = _clusters(state).get(device)
        if cluster is None:
            return state.broadcast
        return {model_name(cluster): state.broadcast[model_name(cluster)]}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the model of the device's cluster."""
        cluster = best_cluster(device, broadcast)
        update = super().local(device, {"weights": broadcast[model_name(cluster)]})
        tensors = {**update.tensors, CLUSTER: np.array([cluster], np.int32)}
        return Update(tensors, update.weight, update.losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Split the clusters with conflicting updates, and average within each part."""
        trained = {id: int(array_of(update.tensors[CLUSTER])[0]) for id, update in updates.each.items()}
        clusters, models = {**_clusters(state), **trained}, dict(state.broadcast)
        for cluster in sorted(set(trained.values())):
            model = weights_of(state.broadcast, model_name(cluster))
            each = {id: updates.each[id] for id in sorted(trained) if trained[id] == cluster}
            apart = self._apart(each)
            models[model_name(cluster)] = self._averaged(model, each, each.keys() - apart)
            if apart:
                clusters = {
                    id: at for id, at in clusters.items() if at != cluster or id in each
                }  # devices outside the round belong to neither part
                clusters |= dict.fromkeys(apart, len(models))
                models[model_name(len(models))] = self._averaged(model, each, apart)
        return ServerState(models, {MEMBERS: _table(clusters)})

    def _averaged(self, model: Weights, each: Mapping[int, Update], part: Set[int]) -> Weights:
        """Return a model after the updates of some devices, added in ascending order of ids for reproducible sums."""
        sent = [each[id] for id in sorted(part)]
        weights = np.array([update.weight for update in sent])
        return moved(model, [weights_of(update.tensors) for update in sent], weights, self.server_learning_rate)

    def _apart(self, each: Mapping[int, Update]) -> set[int]:
        """Return the devices that are split off a cluster; empty if it is not split."""
        if len(each) < SMALLEST:
            return set()
        changes = [weights_of(update.tensors) for update in each.values()]
        compared = trained_by_gradients(changes[0].layout)
        rows = np.stack([change.select(compared).vector for change in changes])
        shares = np.array([update.weight for update in each.values()])
        products = (rows @ rows.T).astype(np.float64)
        norms = np.sqrt(products.diagonal())
        mean = np.sqrt(max(shares @ products @ shares, 0)) / shares.sum()
        if norms.min() == 0 or mean >= self.mean_norm * norms.max():
            return set()
        apart, across = bipartition(products / np.outer(norms, norms))
        return {id for id, leaves in zip(each, apart, strict=True) if leaves} if across < self.similarity else set()

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the model of the device's cluster."""
        return of_cluster(device, broadcast)


def bipartition(similarities: NDArray[np.float64]) -> tuple[NDArray[np.bool_], float]:
    """Split rows into two parts such that the largest similarity across them is as small as possible.

    Cutting the smallest edge of the maximum spanning tree (Prim's algorithm, from the first row) gives the parts.

    Args:
        similarities: `[rows, rows]`, symmetric, at least two rows.

    Returns:
        A mask `[rows]` of the part without the first row, and the largest similarity across both parts.
    """
    rows = len(similarities)
    nearest, parents = similarities[0].copy(), np.zeros(rows, np.intp)
    outside = np.arange(rows) > 0
    edges, order = np.full(rows, np.inf), []
    while outside.any():
        row = int(np.where(outside, nearest, -np.inf).argmax())
        edges[row], outside[row] = nearest[row], False
        order.append(row)
        nearer = outside & (similarities[row] > nearest)
        nearest[nearer], parents[nearer] = similarities[row, nearer], row
    cut = int(edges.argmin())
    apart = np.arange(rows) == cut
    for row in order:  # parents first
        apart[row] |= apart[parents[row]]
    return apart, float(edges[cut])


def _clusters(state: ServerState) -> dict[int, int]:
    """Return the clusters by device, without devices that have none."""
    return dict(array_of(state.private[MEMBERS]).tolist())


def _table(clusters: Mapping[int, int]) -> NDArray[np.int64]:
    """Return pairs of device and cluster, `[devices, 2]`, in ascending order of devices."""
    return np.array(sorted(clusters.items()), np.int64).reshape(-1, 2)
