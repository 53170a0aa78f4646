"""pFedHN: a network on the server computes the weights of each device from an embedding of the device.

Paper: Shamsian et al. 2021, Personalized Federated Learning using Hypernetworks, algorithm 1.
Rule: device i receives `w_i = h(e_i)`, trains it and sends the change d_i. The server moves along the products of d_i
with the Jacobian of h, `(phi, e_i) <- (phi, e_i) + server_learning_rate d_i^T (dh/dphi, dh/de_i)`, averaged over the
cohort for the weights phi of h. A device's user gets h(e_i).
Travels: w_i down, d_i up. BatchNorm statistics travel with them and are averaged as in FedAvg.
Stays: nothing; h and all e_i are on the server. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Memory: the server holds `hidden_size` times the model and writes it to disk each round, 0.4 GB for 1 million
parameters. Each message and update takes a pass over it, so the algorithm is meant for small models.
Deviations: the paper's server draws one device per round; here, the products of a cohort are computed at the h that
generated its weights. The paper starts from a random h. Here, the kernel of h's last layer starts at 0 and its bias at
the exported weights, so that training starts there. Devices that join later start from the mean embedding. The
published program adds momentum, weight decay and clipping.
Unseen devices get the weights of the mean embedding; the paper trains an embedding for them.
Hyper-parameters: `server_learning_rate`, above 0, default 0.2, which validates best on three tasks (docs/evaluation.md;
alpha); `embedding_size`, 1 or more, default 8; `hidden_size`, 1 or more, default 100, and `hidden_layers`, 0 or more,
default 3, both as in the published program.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import checked, checked_count
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Updates, weights_of
from odt_sim.strategies.hypernetwork import Hypernetwork, drawn_embedding
from odt_sim.strategies.state import trained_by_gradients

EMBEDDING = "embedding."
"""Prefix of the name of a device's embedding in the private state; the device id follows."""


class PFedHN(Strategy):
    """A hypernetwork on the server, trained on the updates of devices."""

    keeps_updates = True
    asynchronous = False

    def __init__(
        self,
        server_learning_rate: float = 0.2,
        embedding_size: int = 8,
        hidden_size: int = 100,
        hidden_layers: int = 3,
    ) -> None:
        """Set the network.

        Args:
            server_learning_rate: Step size of the network and the embeddings, above 0.
            embedding_size: Size of a device's embedding, at least 1.
            hidden_size: Size of each hidden layer, at least 1.
            hidden_layers: Hidden layers after the first one.
        """
        self.server_learning_rate = checked("server_learning_rate", server_learning_rate, 0, above=True)
        self.embedding_size = checked_count("embedding_size", embedding_size, 1)
        self.hidden_size = checked_count("hidden_size", hidden_size, 1)
        self.hidden_layers = checked_count("hidden_layers", hidden_layers)

    def init(self, initial: Weights) -> ServerState:
        """Return a network that outputs the exported weights for all devices."""
        state = super().init(initial)
        trained = initial.select(trained_by_gradients(initial.layout)).vector
        network = Hypernetwork.drawn(self.embedding_size, self.hidden_size, self.hidden_layers, trained)
        return ServerState(state.broadcast, network.tensors())

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return the weights for the device's embedding, or for the mean embedding if the device is new."""
        embedding = state.private.get(f"{EMBEDDING}{device}")
        if embedding is None:
            return state.broadcast
        return {"weights": _generated(state.weights, Hypernetwork.of(state.private), array_of(embedding))}

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Take a step on the network and on the embeddings of the devices that contributed."""
        network, known = Hypernetwork.of(state.private), _embeddings(state.private)
        ids = sorted(updates.each)
        before = np.stack([self._embedding(known, id) for id in ids])
        layout = trained_by_gradients(state.weights.layout)
        changes = np.stack([weights_of(updates.each[id].tensors).select(layout).vector for id in ids])
        step = np.float32(self.server_learning_rate / len(ids))
        of_network, of_embeddings = network.gradient(before, step * changes)
        network, after = network.plus(of_network), before + len(ids) * of_embeddings
        known |= dict(zip(ids, after, strict=True))
        with_statistics = state.weights + weights_of(updates.mean)
        weights = _generated(with_statistics, network, _mean(known[id] for id in sorted(known)))
        stored = {f"{EMBEDDING}{id}": embedding for id, embedding in known.items()}
        return ServerState({"weights": weights}, {**network.tensors(), **stored})

    def _embedding(self, known: dict[int, NDArray[np.float32]], device: int) -> NDArray[np.float32]:
        """Return a device's embedding; a new device gets the mean of the known ones or, without any, a random one."""
        if device in known:
            return known[device]
        return _mean(known[id] for id in sorted(known)) if known else drawn_embedding(device, self.embedding_size)


def _embeddings(private: Tensors) -> dict[int, NDArray[np.float32]]:
    """Return the embeddings by device."""
    return {
        int(name.removeprefix(EMBEDDING)): array_of(found)
        for name, found in private.items()
        if name.startswith(EMBEDDING)
    }


def _mean(embeddings: Iterable[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.asarray(np.mean(list(embeddings), axis=0, dtype=np.float32))


def _generated(weights: Weights, network: Hypernetwork, embedding: NDArray[np.float32]) -> Weights:
    """Return weights with the trained ones replaced by the network's output for an embedding."""
    layout = trained_by_gradients(weights.layout)
    [vector] = network.weights(embedding[np.newaxis])
    return weights.replace(Weights(layout, vector))
