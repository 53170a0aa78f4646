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

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.random import generator_for
from odt_sim.hyperparameters import count, number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Updates, weights_of
from odt_sim.strategies.state import trained_by_gradients

EMBEDDING = "embedding."
"""Prefix of the name of a device's embedding in the private state; the device id follows."""


Array = NDArray[np.float32]


class Layer(NamedTuple):
    """A linear layer, `x kernel + bias`.

    Attributes:
        kernel: `[inputs, outputs]`.
        bias: `[outputs]`.
    """

    kernel: Array
    bias: Array

    def __call__(self, x: Array) -> Array:
        """Return the outputs `[rows, outputs]` of inputs `[rows, inputs]`."""
        return np.asarray(x @ self.kernel + self.bias)

    def plus(self, change: "Layer") -> "Layer":
        """Return the sum of two layers, written into `change`, since a copy of the output's kernel would be large."""
        return Layer(*(np.add(own, other, out=other) for own, other in zip(self, change, strict=True)))


class Hypernetwork(NamedTuple):
    """Linear layers with ReLU after each hidden layer except the last one, which compute weights from embeddings.

    They map an embedding to features f, `[hidden_size]`; the weights are `bias + f kernel`, with a column of `kernel` for
    each weight. All sizes except the number of weights are small, so the last layer uses nearly all memory and time.

    Attributes:
        layers: The hidden layers and, last, the output.
    """

    layers: Sequence[Layer]

    @classmethod
    def drawn(cls, embedding_size: int, hidden_size: int, hidden_layers: int, weights: Array) -> "Hypernetwork":
        """Return a network with random hidden layers that outputs the given weights for any embedding.

        Hidden layers are drawn uniformly between plus and minus `1 / sqrt(inputs)`; the output's kernel is 0.

        Args:
            embedding_size: Size of an embedding.
            hidden_size: Size of each hidden layer.
            hidden_layers: Number of hidden layers after the first one.
            weights: `[weights]`.
        """
        random = generator_for("hypernetwork")
        sizes = [embedding_size, *[hidden_size] * (hidden_layers + 1)]

        def uniform(inputs: int, *shape: int) -> Array:
            return random.uniform(-(inputs**-0.5), inputs**-0.5, shape).astype(np.float32)

        hidden = [Layer(uniform(n, n, m), uniform(n, m)) for n, m in pairwise(sizes)]
        return cls([*hidden, Layer(np.zeros((hidden_size, len(weights)), np.float32), weights.copy())])

    @classmethod
    def of(cls, tensors: Tensors) -> "Hypernetwork":
        """Return the network from the result of `tensors`."""
        count = sum(name.startswith("kernel.") for name in tensors)
        return cls([Layer(array_of(tensors[f"kernel.{i}"]), array_of(tensors[f"bias.{i}"])) for i in range(count)])

    def tensors(self) -> dict[str, Array]:
        """Return the layers as named arrays."""
        kernels = {f"kernel.{i}": layer.kernel for i, layer in enumerate(self.layers)}
        return {**kernels, **{f"bias.{i}": layer.bias for i, layer in enumerate(self.layers)}}

    def weights(self, embeddings: Array) -> Array:
        """Return the weights `[devices, weights]` for embeddings `[devices, embedding_size]`."""
        return self.layers[-1](self._inputs(embeddings)[-1])

    def _inputs(self, embeddings: Array) -> list[Array]:
        """Return the inputs of each layer."""
        inputs = [embeddings]
        for i, layer in enumerate(self.layers[:-1]):
            outputs = layer(inputs[-1])
            inputs.append(np.maximum(outputs, 0) if i < len(self.layers) - 2 else outputs)
        return inputs

    def gradient(self, embeddings: Array, slopes: Array) -> tuple[list[Layer], Array]:
        """Return the gradient of `sum(weights(embeddings) * slopes)` with respect to all layers, and to the embeddings.

        Args:
            embeddings: `[devices, embedding_size]`.
            slopes: `[devices, weights]`.
        """
        inputs, gradients = self._inputs(embeddings), []
        for i in reversed(range(len(self.layers))):
            gradients.append(Layer(inputs[i].T @ slopes, slopes.sum(axis=0)))
            slopes = slopes @ self.layers[i].kernel.T
            if 0 < i < len(self.layers) - 1:
                slopes = slopes * (inputs[i] > 0)
        return gradients[::-1], slopes

    def plus(self, changes: Sequence[Layer]) -> "Hypernetwork":
        """Return the network with changes added to its layers; `changes` is overwritten."""
        return Hypernetwork([own.plus(change) for own, change in zip(self.layers, changes, strict=True)])


def drawn_embedding(device: int, size: int) -> NDArray[Any]:
    """Return a device's random embedding of standard normal numbers, `[size]`."""
    return generator_for("embedding", device).standard_normal(size).astype(np.float32)


class PFedHN(Strategy):
    """A hypernetwork on the server, trained on the updates of devices.

    Attributes:
        server_learning_rate: Step size of the network and the embeddings, above 0.
        embedding_size: Size of a device's embedding, at least 1.
        hidden_size: Size of each hidden layer, at least 1.
        hidden_layers: Hidden layers after the first one.
    """

    keeps_updates = True
    asynchronous = False
    unused = frozenset({"weighting"})
    server_learning_rate: float = number(0.2, above=True, search="tag(log,interval(0.1,1))", kw_only=True)
    embedding_size: int = count(8, 1)
    hidden_size: int = count(100, 1)
    hidden_layers: int = count(3)

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
