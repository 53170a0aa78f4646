"""Clusters of devices, a model for each.

Ghosh et al. 2020, An Efficient Framework for Clustered Federated Learning (IFCA), algorithm 1 with model averaging; Mansour
et al. 2020, Three Approaches for Personalization, section 3 (HypCluster).
Rule: a device takes the model with the smallest loss on its training examples and trains it; each model is averaged over
those that took it, weighted by examples as in FedAvg (the paper weighs them alike). A device's user gets the model it would
take. The paper draws the models' beginnings apart, after which one often wins everywhere; here all begin as exported, and for
the first `warm_up_rounds` device i trains model i modulo `clusters`: FedAvg over parts of the fleet, whatever their data.
Travels: all models down, one up, BatchNorm statistics included. Stays: nothing; the optimizer's slots start fresh each round.
Unseen devices take the model with the smallest loss on their training examples.
Hyper-parameters: `clusters`, 1..20, default 2; `warm_up_rounds`, 0..rounds, default 5.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, array_of, weights_of
from odt_sim.strategies.settings import checked_count


class IFCA(Strategy):
    """FedAvg for several models, of which each device chooses one."""

    def __init__(self, clusters: int = 2, warm_up_rounds: int = 5) -> None:
        """Sets the number of models.

        Args:
            clusters: How many.
            warm_up_rounds: The rounds in which devices do not choose yet.
        """
        self.clusters = checked_count("clusters", clusters, 1)
        self.warm_up_rounds = checked_count("warm_up_rounds", warm_up_rounds)

    def init(self, initial: Weights) -> ServerState:
        """Returns the exported weights as each of the models."""
        state = super().init(initial)
        return ServerState({_name(cluster): state.weights for cluster in range(self.clusters)})

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains the model of the device's cluster."""
        warming = device.round <= self.warm_up_rounds
        cluster = device.id % self.clusters if warming else self._choice(device, broadcast)
        update = super().local(device, {"weights": broadcast[_name(cluster)]})
        tensors = {_name(cluster): update.tensors["weights"], _share(cluster): np.ones(1, np.float32)}
        return Update(tensors, update.weight, update.losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Averages each model over the devices that trained it; the mean over all is short by their share of the weight."""
        after = dict(state.broadcast)
        for cluster in range(self.clusters):
            name = _name(cluster)
            if name in updates.mean:
                share = float(array_of(updates.mean[_share(cluster)])[0])
                after[name] = weights_of(after, name) + weights_of(updates.mean, name) / share
        return ServerState(after)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the model of the device's cluster."""
        cluster = self._choice(device, broadcast)
        device.records["cluster"] = cluster
        return super().deploy(device, {"weights": broadcast[_name(cluster)]})

    def _choice(self, device: Device, broadcast: Tensors) -> int:
        losses = []
        for cluster in range(self.clusters):
            device.restore(weights_of(broadcast, _name(cluster)))
            losses.append(device.loss("train"))
        return int(np.argmin(losses))


def _name(cluster: int) -> str:
    return f"weights.{cluster}"


def _share(cluster: int) -> str:
    return f"share.{cluster}"
