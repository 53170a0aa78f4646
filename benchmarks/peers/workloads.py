"""The workloads of `peers.py` in plain numpy, for the environments of other simulators, which lack odt_sim.

All arrays are in one folder, written by `prepare.py`: examples, the devices of each round, and initial weights. The
number of a device's examples is a multiple of the batch size, so that all simulators take the same number of steps,
however they treat incomplete batches.
"""

import json
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[Any]
COHORT = 10  # devices per round
LOSS_EXAMPLES = 1000  # number of examples for the final loss


@dataclass(frozen=True)
class Workload:
    """The training of each device in a round, and the rounds of a run.

    Attributes:
        title: The name in tables.
        batch: Examples per step.
        epochs: Passes over a device's examples per round.
        learning_rate: The learning rate of plain SGD.
        rounds: The rounds of a run.
        warm_up: The number of first rounds that updates per second leave out.
        tolerance: The largest allowed relative difference between the final losses of two simulators.
    """

    title: str
    batch: int
    epochs: int
    learning_rate: float
    rounds: int
    warm_up: int
    tolerance: float


WORKLOADS = {
    "softmax": Workload("softmax regression", 10, 20, 0.01, 18, 3, 0.03),
    "cnn": Workload("CNN", 32, 1, 0.05, 50, 3, 0.03),
    "lstm": Workload("character LSTM", 16, 1, 0.1, 90, 3, 0.03),
    "transfer": Workload("head of a frozen MobileNet", 16, 5, 0.05, 250, 10, 0.03),
}


@dataclass(frozen=True)
class Problem:
    """A workload with its memory-mapped arrays.

    Attributes:
        name: The workload's name.
        folder: The folder of its arrays.
    """

    name: str
    folder: Path

    @classmethod
    def chosen(cls) -> "Problem":
        """Return the workload named by the environment variables WORKLOAD and DATA."""
        return cls(os.environ["WORKLOAD"], Path(os.environ["DATA"]))

    @property
    def workload(self) -> Workload:
        """The settings of the workload."""
        return WORKLOADS[self.name]

    @cached_property
    def x(self) -> Array:
        """`[examples, ...]` float32 or int32."""
        return self._mapped("x")

    @cached_property
    def y(self) -> Array:
        """`[examples]` or `[examples, characters]` int32."""
        return self._mapped("y")

    @cached_property
    def starts(self) -> Array:
        """`[devices + 1]` int64: the start of each device's examples, and the end of the last device's."""
        return self._mapped("starts")

    @cached_property
    def cohorts(self) -> Array:
        """`[rounds, COHORT]` int64: the devices of each round."""
        return self._mapped("cohorts")

    @cached_property
    def features(self) -> Array:
        """`[examples, 256]` float32: the output of the frozen body for `x`."""
        return self._mapped("features")

    def _mapped(self, name: str) -> Array:
        array: Array = np.load(self.folder / self.name / f"{name}.npy", mmap_mode="r")
        return array

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.starts) - 1

    @property
    def rounds(self) -> int:
        """The number of rounds; the environment variable ROUNDS overrides it, to try a script with fewer."""
        return int(os.environ.get("ROUNDS", self.workload.rounds))

    @property
    def warm_up(self) -> int:
        """The number of first rounds that updates per second leave out."""
        return min(self.workload.warm_up, self.rounds - 1)

    @cached_property
    def initial(self) -> list[Array]:
        """The initial values of the trained parameters, in Keras's layout and order."""
        return self._several("initial")

    @cached_property
    def body(self) -> list[Array]:
        """The parameters of a frozen body: kernel, gamma, beta, mean and variance of each convolution."""
        return self._several("body")

    def _several(self, name: str) -> list[Array]:
        return [np.load(path) for path in sorted((self.folder / self.name).glob(f"{name}_*.npy"))]

    def size(self, device: int) -> int:
        """Return the number of a device's examples."""
        return int(self.starts[device + 1] - self.starts[device])

    def expected_steps(self) -> int:
        """Return the number of training steps of all rounds."""
        sizes = sum(self.size(device) for device in self.cohorts[: self.rounds].flat)
        return self.workload.epochs * sizes // self.workload.batch

    def examples(self, device: int, features: bool = False) -> tuple[Array, Array]:
        """Return a copy of a device's examples, `(x, y)`, or a frozen body's features instead of `x`."""
        own = slice(*self.starts[device : device + 2])
        return np.array((self.features if features else self.x)[own]), np.array(self.y[own])

    def loss(self, weights: list[Array]) -> float:
        """Return the mean cross-entropy of a model on evenly spaced examples of the whole data.

        Args:
            weights: The trained parameters as in `initial`.
        """
        some = slice(None, None, max(1, len(self.x) // LOSS_EXAMPLES))
        x = np.array((self.features if self.name == "transfer" else self.x)[some])
        logits = {"cnn": cnn, "lstm": lstm}.get(self.name, softmax)(x, [np.asarray(w, np.float64) for w in weights])
        logits -= logits.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(logits, np.array(self.y[some])[..., np.newaxis], -1)[..., 0]
        return float((np.log(np.exp(logits).sum(axis=-1)) - chosen).mean())

    def report(self, marks: list[float], steps: int, weights: list[Array]) -> None:
        """Print the line that `peers.py` reads.

        Args:
            marks: The time at the end of each round.
            steps: The training steps of all rounds, in this process.
            weights: The trained parameters as in `initial`.
        """
        for given, expected in zip(weights, self.initial, strict=True):
            assert given.shape == expected.shape, (given.shape, expected.shape)
        parameters = sum(w.size for w in weights)
        line = {"marks": marks, "steps": steps, "parameters": parameters, "loss": self.loss(weights)}
        sys.stdout.write(f"\nRESULT {json.dumps(line)}\n")  # one write, since processes share the stream
        sys.stdout.flush()


def drawn_images(examples: int, size: int) -> tuple[Array, Array]:
    """Return `[examples, size, size, 3]` images from 0 to 1 and their labels `[examples]`."""
    generator = np.random.default_rng(2)
    templates = generator.random((10, size, size, 3), np.float32)
    y = generator.integers(0, 10, examples).astype(np.int32)
    x = 0.5 * templates[y] + 0.5 * generator.random((examples, size, size, 3), np.float32)
    return x.astype(np.float32), y


def softmax(x: Array, weights: list[Array]) -> Array:
    """Return the logits of a softmax regression."""
    kernel, bias = weights
    return x @ kernel + bias


def cnn(x: Array, weights: list[Array]) -> Array:
    """Return the logits of the CNN: two 3x3 convolutions with ReLU and 2x2 max-pooling, and two dense layers."""
    for kernel, bias in (weights[:2], weights[2:4]):
        windows = sliding_window_view(x, (3, 3), (1, 2))  # [images, height, width, channels, 3, 3]
        x = np.maximum(np.einsum("nhwcij,ijco->nhwo", windows, kernel, optimize=True) + bias, 0)
        height, width = (size // 2 * 2 for size in x.shape[1:3])
        x = x[:, :height, :width].reshape(len(x), height // 2, 2, width // 2, 2, -1).max((2, 4))
    hidden = np.maximum(x.reshape(len(x), -1) @ weights[4] + weights[5], 0)
    return hidden @ weights[6] + weights[7]


def lstm(x: Array, weights: list[Array]) -> Array:
    """Return the logits of the LSTM at each position; gates are in Keras's order: input, forget, cell, output."""
    embedding, kernel, recurrent, bias, dense, dense_bias = weights
    units = len(recurrent)
    h, c, outputs = np.zeros((len(x), units)), np.zeros((len(x), units)), []
    for place in range(x.shape[1]):
        gates = embedding[x[:, place]] @ kernel + h @ recurrent + bias
        i, f, g, o = (gates[:, k * units : (k + 1) * units] for k in range(4))
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        outputs.append(h @ dense + dense_bias)
    return np.stack(outputs, 1)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
