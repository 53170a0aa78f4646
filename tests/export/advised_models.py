"""Models and losses that an export refuses, and those that it advises instead."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, losses, ops

X, Y = np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32)


def stack(*body: Any, shape: tuple[int | None, ...] = (4,), last: Any = 3) -> Callable[[], Any]:
    """Return a function that builds a Sequential; functions in its body build layers."""

    def build() -> Any:
        tail = [layers.Dense(last, name="last")] if isinstance(last, int) else last
        return keras.Sequential([layers.Input(shape), *(own() for own in body), *tail])

    return build


def dense() -> Any:
    return layers.Dense(4, name="hidden")


def own(function: Any, name: str = "own") -> Callable[[], Any]:
    return lambda: layers.Lambda(function, output_shape=lambda shape: shape, name=name)


class Network(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="network")
        self.last = layers.Dense(3, name="last")

    def call(self, x: Any) -> Any:
        return self.last(x)


class Computed(Network):
    """A class that uses the compiled loss, and a second one."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        each = 0.1 * ops.mean(ops.abs(y_pred), -1)
        return super().compute_loss(x, y, y_pred, sample_weight) + ops.mean(
            each if sample_weight is None else each * sample_weight
        )


class OwnLoss(Network):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        each = ops.mean(ops.square(y - y_pred), -1)
        return ops.mean(each if sample_weight is None else each * sample_weight)


class NoWeights(Network):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        return ops.mean(ops.square(y - y_pred))


class Stepped(Network):
    """A class with its own step, which takes x and y."""

    def train_step(self, data: Any) -> Any:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            each = ops.mean(ops.square(self(x) - y), -1)
            loss = ops.mean(each if weight is None else each * weight)
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return self.logs(loss)

    def logs(self, loss: Any) -> dict[str, Any]:
        return {"loss": loss}


class Silent(Stepped):
    def logs(self, loss: Any) -> dict[str, Any]:
        return {"total": loss}


class Reconstructing(Network):
    """A class with its own step, which takes x alone."""

    def __init__(self) -> None:
        super().__init__()
        self.total = keras.metrics.Mean(name="loss")

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(data) - data[:, :3]))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        self.total.update_state(loss)
        return {"loss": self.total.result()}


class Unweighted(Stepped):
    def train_step(self, data: Any) -> Any:
        x, y = data[:2]
        return super().train_step((x, y))


class Callless(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="callless")
        self.last = layers.Dense(3, name="last")


class Scaled(layers.Layer):  # type: ignore[misc]
    """A layer that creates its regularizer in `build`, or in `__init__`."""

    def __init__(self, regularizer: Any = "l1") -> None:
        super().__init__(name="scaled")
        self.regularizer = regularizer

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(3,), regularizer=self.regularizer, name="scale")

    def call(self, x: Any) -> Any:
        return x * self.scale


class Lazy(keras.Model):  # type: ignore[misc]
    def __init__(self, regularizer: Any = "l1") -> None:
        super().__init__()
        self.scaled = Scaled(regularizer)

    def call(self, x: Any) -> Any:
        return self.scaled(x)


class Multiplied(layers.Layer):  # type: ignore[misc]
    """A layer that multiplies by a variable that is a weight, or not."""

    def __init__(self, *, weight: bool) -> None:
        super().__init__(name="double")
        self.outside = self.add_weight(shape=(), initializer="ones") if weight else [tf.Variable(1.0)]

    def call(self, x: Any) -> Any:
        return x * (self.outside[0] if isinstance(self.outside, list) else self.outside)


def lazily_built(regularizer: Any = "l1") -> Any:
    lazy = Lazy(regularizer)
    lazy(np.zeros((1, 3), np.float32))
    return lazy


def masked(*, kept: bool = True) -> Any:
    x = layers.Input((4,), dtype="int32")
    h = layers.Dense(2)(layers.Embedding(3, 3, mask_zero=True)(x))
    return keras.Model(x, h if kept else h * 1.0)


def two_outputs(*names: str) -> Any:
    x = layers.Input((4,))
    return keras.Model(x, [layers.Dense(2, name=name)(x) for name in names])


def shared_names(*names: str) -> Any:
    inner = [keras.Sequential([layers.Input((4,)), layers.Dense(4, name="same")], name=name) for name in names]
    return keras.Sequential([layers.Input((4,)), *inner])


def beside() -> Any:
    """Return a model with a path around its last layers."""
    x = layers.Input((4,))
    h = layers.Dense(4, name="hidden")(x)
    return keras.Model(x, layers.Add()([layers.Dense(4, name="last")(h), x]))


def read(*, strings: bool) -> Any:
    x = layers.Input((4,), dtype="string" if strings else "int32")
    number = layers.StringLookup(vocabulary=["yes", "no"])(x) if strings else x
    return keras.Model(x, layers.Dense(3)(layers.Flatten()(layers.Embedding(3, 2)(number))))


def looped(x: Any, most: int | None = None) -> Any:
    return tf.while_loop(lambda v: tf.reduce_sum(v) < 1e6, lambda v: (1.5 * v + 1.0,), (x,), maximum_iterations=most)[0]


def repeated(x: Any, times: Any) -> Any:
    for _ in range(times) if isinstance(times, int) else tf.range(times(x)):
        x = x * 1.1
    return x


def determinant(x: Any) -> Any:
    return tf.linalg.det(_positive(x))[:, None] * x


def by_cholesky(x: Any) -> Any:
    return ops.square(ops.prod(ops.diagonal(ops.cholesky(_positive(x)), axis1=1, axis2=2), -1))[:, None] * x


def _positive(x: Any) -> Any:
    matrix = ops.reshape(ops.tanh(x), (-1, 2, 2))
    return ops.matmul(matrix, ops.transpose(matrix, (0, 2, 1))) + ops.eye(2)


def clip(y: Any, output: Any, rows: Any = lambda x: ops.shape(x)[0]) -> Any:
    pairs = ops.matmul(output, ops.transpose(output))
    return losses.sparse_categorical_crossentropy(ops.arange(rows(output)), pairs, from_logits=True)


def clip_by_shape(y: Any, output: Any) -> Any:
    return clip(y, output, lambda x: x.shape[0])


def boxes(y: Any, output: Any) -> Any:
    return ops.mean(ops.square(y - output[:, :, None]), (1, 2))


def mixture(y: Any, output: Any) -> Any:
    return ops.mean(ops.square(y - output[:, :2]) * ops.exp(output[:, 2:]) - output[:, 2:], -1)


def triplet(y: Any, embedding: Any) -> Any:
    distances = ops.sum(ops.square(embedding[:, None] - embedding[None]), -1)
    same = ops.cast(ops.equal(y[:, None], y[None]), "float32")
    return ops.relu(ops.max(distances * same, 1) - ops.min(distances + 1e3 * same, 1) + 1.0)


def of_examples(y: Any, output: Any) -> Any:
    return ops.mean(ops.square(y - output), (1, 2))


class Penalized(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        self.add_loss(ops.mean(ops.square(x - 1.0)))
        return x


def penalized() -> Any:
    return keras.Sequential([layers.Input((4,)), layers.Dense(3, name="hidden"), Penalized()])


def built(kind: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that builds a class by a call."""

    def build() -> Any:
        model = kind()
        model(X)
        return model

    return build
