"""Trainable files as authors convert them: a Keras model, a GradientTape, and TensorFlow's checkpoints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

from dialects.models import checkpoint, convert, function, spec

CLASSES = 3
Batch = tuple[NDArray[Any], NDArray[Any]]


Step = Callable[[tf.Variable, tf.Tensor, Callable[[str], tf.Variable]], None]
"""An optimizer's step on a weight with its gradient; the last argument returns a slot of the weight by name."""


def sgd(weight: tf.Variable, gradient: tf.Tensor, slot: Callable[[str], tf.Variable]) -> None:
    weight.assign_sub(0.1 * tf.convert_to_tensor(gradient))


def sgd_of_keras_2(weight: tf.Variable, gradient: tf.Tensor, slot: Callable[[str], tf.Variable]) -> None:
    tf.raw_ops.ResourceApplyGradientDescent(var=weight.handle, alpha=0.1, delta=gradient)


def momentum(weight: tf.Variable, gradient: tf.Tensor, slot: Callable[[str], tf.Variable]) -> None:
    weight.assign_sub(0.1 * slot("velocity").assign(0.9 * slot("velocity") + gradient))


def momentum_of_keras_2(weight: tf.Variable, gradient: tf.Tensor, slot: Callable[[str], tf.Variable]) -> None:
    handles = {"var": weight.handle, "accum": slot("momentum").handle}
    tf.raw_ops.ResourceApplyKerasMomentum(**handles, lr=0.1, grad=gradient, momentum=0.9, use_nesterov=True)


def adam(weight: tf.Variable, gradient: tf.Tensor, slot: Callable[[str], tf.Variable]) -> None:
    mean = slot("m").assign(0.9 * slot("m") + 0.1 * gradient)
    square = slot("v").assign(0.999 * slot("v") + 0.001 * tf.square(gradient))
    weight.assign_sub(0.01 * mean / (tf.sqrt(square) + 1e-7))


class Classic(tf.Module):
    """A model with plain variables, whose initial values are in the file.

    Attributes:
        model: The Keras model; its own variables are not used.
        step: The optimizer.
        sparse: Whether the targets are class numbers.
    """

    def __init__(self, model: keras.Model, step: Step, *, sparse: bool) -> None:
        super().__init__()
        self.model, self.step, self.sparse = model, step, sparse
        self.trained = [_plain(v) for v in model.trainable_variables]
        self.others = [_plain(v) for v in model.non_trainable_variables]
        slots = [[tf.Variable(tf.zeros(v.shape), name=f"{name}/{v.name[:-2]}") for name in "mv"] for v in self.trained]
        self.slots = dict(zip((v.name for v in self.trained), slots, strict=True))

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        logits, others = self.model.stateless_call(self.trained, self.others, x, training=True)
        sparse = tf.nn.sparse_softmax_cross_entropy_with_logits
        losses = sparse(y, logits) if self.sparse else tf.nn.softmax_cross_entropy_with_logits(y, logits)
        return tf.reduce_mean(losses), others

    def train(self, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss, others = self.loss(x, y)
        for v, gradient in zip(self.trained, tape.gradient(loss, self.trained), strict=True):
            first, second = self.slots[v.name]
            self.step(v, gradient, lambda name, first=first, second=second: second if name == "v" else first)
        for v, value in zip(self.others, others, strict=True):
            v.assign(value)
        return {"loss": loss}

    def infer(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        logits, _ = self.model.stateless_call(self.trained, self.others, x, training=False)
        return {"logits": logits}

    def write(self, path: Path, rows: int | None) -> Path:
        """Convert the model; `rows` is the batch size, None for any number of rows."""
        (own,) = self.model.inputs
        x = spec([rows, *own.shape[1:]], own.dtype)
        y = spec([rows], tf.int32) if self.sparse else spec([rows, CLASSES])
        save, restore = checkpoint([*self.trained, *self.others], [])
        signatures = {
            "train": function(self.train, x=x, y=y),
            "infer": function(self.infer, x=x),
            "save": save,
            "restore": restore,
        }
        convert(self, signatures, path, flex=True)
        return path


def _plain(v: keras.Variable) -> tf.Variable:
    return tf.Variable(v.numpy(), name=v.path, trainable=v.trainable)


def sequential(*own: layers.Layer, shape: tuple[int, ...], dtype: str = "float32") -> keras.Model:
    return keras.Sequential(
        [layers.Input(shape, dtype=dtype), *own, layers.Dense(CLASSES, name="classifier")], name="net"
    )


def dense() -> keras.Model:
    return sequential(layers.Dense(5, activation="relu", name="hidden"), shape=(6,))


def convolution() -> keras.Model:
    body = [layers.Conv2D(4, 3, activation="relu", name="conv"), layers.MaxPooling2D(2)]
    body += [layers.Conv2D(5, 2, strides=2, padding="same", activation="relu", name="strided"), layers.Flatten()]
    return sequential(*body, shape=(8, 8, 1))


def normalized() -> keras.Model:
    body = [layers.Conv2D(4, 3, use_bias=False, name="conv"), layers.BatchNormalization(name="norm"), layers.ReLU()]
    return sequential(*body, layers.AveragePooling2D(2), layers.Flatten(), shape=(8, 8, 2))


def depthwise() -> keras.Model:
    body = [layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="relu6", name="depthwise")]
    body += [layers.SeparableConv2D(4, 3, name="separable"), layers.GlobalAveragePooling2D()]
    return sequential(*body, shape=(6, 6, 3))


class Dropout(layers.Layer):
    """The Dropout of Keras 2, without a seed generator."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return tf.nn.dropout(x, 0.5) if training else x


def dropped() -> keras.Model:
    return sequential(layers.Dense(50, activation="relu"), Dropout(), shape=(6,))


def embedding() -> keras.Model:
    body = [layers.Embedding(7, 4, name="words"), layers.GlobalAveragePooling1D()]
    return sequential(*body, shape=(5,), dtype="int32")


def recurrent() -> keras.Model:
    return sequential(layers.LSTM(4, name="lstm"), shape=(5, 3))


def recurrent_over_dense(layer: type[layers.LSTM] | type[layers.GRU]) -> keras.Model:
    body = [layers.Dense(12, activation="tanh", name="hidden"), layers.Reshape((4, 3)), layer(5, name="recurrent")]
    return sequential(*body, shape=(6,))


NETWORKS: dict[str, tuple[Callable[[], keras.Model], Step, bool]] = {
    "dense": (dense, sgd, False),
    "sparse": (dense, momentum, True),
    "convolution": (convolution, sgd, True),
    "normalized": (normalized, sgd_of_keras_2, False),
    "depthwise": (depthwise, momentum_of_keras_2, False),
    "embedding": (embedding, sgd, True),
    "adam": (dense, adam, False),
    "lstm": (recurrent, sgd, False),
    "lstm_over_dense": (lambda: recurrent_over_dense(layers.LSTM), sgd, True),
    "gru_over_dense": (lambda: recurrent_over_dense(layers.GRU), sgd, True),
}
RANDOM = {"dropout": (dropped, sgd, False)}


def classic(name: str) -> Classic:
    """Return a network that an author would train."""
    build, step, sparse = {**NETWORKS, **RANDOM}[name]
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    return Classic(build(), step, sparse=sparse)


def batches(model: Classic, rows: int, count: int) -> list[Batch]:
    random = np.random.default_rng(5)
    (own,) = model.model.inputs
    result = []
    for _ in range(count):
        shape = (rows, *own.shape[1:])
        words = own.dtype == "int32"
        x = random.integers(0, 7, shape).astype(np.int32) if words else random.normal(size=shape).astype(np.float32)
        y = random.integers(0, CLASSES, rows)
        result.append((x, y.astype(np.int32) if model.sparse else np.eye(CLASSES, dtype=np.float32)[y]))
    return result
