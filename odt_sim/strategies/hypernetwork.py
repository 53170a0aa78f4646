"""Hypernetwork on the server: a network that computes the weights of devices' models, and its gradient.

A perceptron maps an embedding to features f, `[hidden_size]`; the weights are `bias + f kernel`, with a column of
`kernel` for each weight. All sizes except the number of weights are small, so the last layer uses nearly all memory and
time.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.random import generator_for
from odt_sim.model.tensors import Tensors, array_of

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
    """Linear layers with ReLU after each hidden layer except the last one.

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
