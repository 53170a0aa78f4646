"""User-defined layers with own weights, losses, metrics and states, shared and nested."""

from typing import Any

import keras
from keras import layers, ops

from parity.case import CLASSES, Case, Family, perceptron


class Scaled(layers.Layer):  # type: ignore[misc]
    """A dense layer with a regularized and constrained weight, a loss and a metric."""

    def __init__(self) -> None:
        super().__init__()
        self.size = keras.metrics.Mean(name="size")

    def build(self, shape: Any) -> None:
        limit = keras.constraints.MaxNorm(2.0)
        self.kernel = self.add_weight(shape=(shape[-1], 6), regularizer="l2", constraint=limit, name="kernel")
        self.bias = self.add_weight(shape=(6,), initializer="zeros", name="bias")

    def call(self, x: Any) -> Any:
        y = ops.matmul(x, self.kernel) + self.bias
        self.add_loss(0.01 * ops.mean(ops.square(y)))
        self.size.update_state(ops.mean(y))
        return y


class Centered(layers.Layer):  # type: ignore[misc]
    """A layer that subtracts a moving average and counts the steps."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="mean")
        self.steps = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False, name="steps")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.steps.assign_add(1)
            rate = 1.0 / ops.cast(self.steps, "float32")
            self.mean.assign((1.0 - rate) * self.mean + rate * ops.mean(x, 0))
        return x - self.mean


class Quantized(layers.Layer):  # type: ignore[misc]
    """A layer that returns the nearest of four codes, which are moving averages of the examples (VQ-VAE)."""

    def build(self, shape: Any) -> None:
        codes = (shape[-1], 4)
        self.codes = self.add_weight(shape=codes, initializer="normal", trainable=False, name="codes")
        self.sums = self.add_weight(shape=codes, initializer="normal", trainable=False, name="sums")
        self.counts = self.add_weight(shape=(4,), initializer="ones", trainable=False, name="counts")

    def call(self, x: Any, training: bool = False) -> Any:
        distances = ops.sum(ops.square(self.codes), 0) - 2.0 * ops.matmul(x, self.codes)
        chosen = ops.one_hot(ops.argmax(-distances, -1), 4)
        nearest = ops.matmul(chosen, ops.transpose(self.codes))
        if training:
            self.counts.assign(0.9 * self.counts + 0.1 * ops.sum(chosen, 0))
            self.sums.assign(0.9 * self.sums + 0.1 * ops.matmul(ops.transpose(x), chosen))
            self.codes.assign(self.sums / self.counts)
        self.add_loss(0.25 * ops.mean(ops.square(ops.stop_gradient(nearest) - x)))
        return x + ops.stop_gradient(nearest - x)


class Tied(layers.Layer):  # type: ignore[misc]
    """A layer that multiplies by the weights of an Embedding."""

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.embedding = embedding

    def call(self, x: Any) -> Any:
        return ops.matmul(x, ops.transpose(self.embedding.embeddings))


def shared() -> Any:
    """Return a model that calls a layer three times, once on its own output."""
    x = layers.Input((6,))
    dense = layers.Dense(6, activation="tanh")
    return keras.Model(x, layers.Dense(CLASSES)(layers.Concatenate()([dense(x), dense(dense(x)), dense(2.0 * x)])))


def tied() -> Any:
    x = layers.Input((4,), dtype="int32")
    embedding = layers.Embedding(6, 3)
    return keras.Model(x, Tied(embedding)(layers.Dense(3)(embedding(x))))


def three_deep() -> Any:
    """Return a Sequential model in a Functional one in a Sequential one in a Functional one."""
    inner = keras.Sequential([layers.Input((6,)), layers.Dense(6, activation="relu"), layers.BatchNormalization()])
    x = layers.Input((6,))
    middle = keras.Model(x, layers.Add()([inner(x), x]))
    outer = keras.Sequential([layers.Input((6,)), middle, layers.Dropout(0.2), layers.Dense(6)])
    y = layers.Input((6,))
    return keras.Model(y, layers.Dense(CLASSES)(layers.Identity()(outer(y))))


OWN_LAYERS = Family(
    "Custom layers",
    "parity/own_layers.py",
    (
        Case(
            "own layers",
            (
                "own weights",
                "`add_loss`",
                "metrics in layers",
                "states that training changes: moving average, codes of a VQ-VAE",
            ),
            lambda: perceptron(Scaled(), Centered(), Quantized(), layers.Dense(CLASSES)),
        ),
        Case("a shared layer", ("shared layers",), shared),
        Case("tied weights", ("tied weights",), tied),
        Case("three models deep", ("models nested three deep", "Identity"), three_deep),
        Case(
            "a normalized kernel",
            ("SpectralNormalization", "ActivityRegularization"),
            lambda: perceptron(
                layers.SpectralNormalization(layers.Dense(4)),
                layers.ActivityRegularization(l1=0.01, l2=0.02),
                layers.Dense(CLASSES),
            ),
        ),
    ),
)
