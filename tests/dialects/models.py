"""Small models in plain TensorFlow, and their conversion."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

FEATURES, HIDDEN, CLASSES, RATE = 6, 5, 3, 0.1
NAMES = {"x": "x", "y": "y", "loss": "loss", "output": "output", "checkpoint_path": "checkpoint_path"}

Signatures = dict[str, Any]
"""A concrete function per signature."""


class Perceptron(tf.Module):
    """One hidden layer, `[rows, 6]` to 3 classes, with an explicit gradient: its step needs no Flex op."""

    labels = "one_hot"

    def __init__(self) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.hidden_kernel = tf.Variable(
            random.normal(0, 0.5, (FEATURES, HIDDEN)).astype(np.float32), name="hidden/kernel"
        )
        self.hidden_bias = tf.Variable(np.full(HIDDEN, 0.1, np.float32), name="hidden/bias")
        self.kernel = tf.Variable(random.normal(0, 0.5, (HIDDEN, CLASSES)).astype(np.float32), name="classifier/kernel")
        self.bias = tf.Variable(np.zeros(CLASSES, np.float32), name="classifier/bias")

    @property
    def weights(self) -> list[tf.Variable]:
        return [self.hidden_kernel, self.hidden_bias, self.kernel, self.bias]

    def hidden(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.matmul(x, self.hidden_kernel) + self.hidden_bias)

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(self.hidden(x), self.kernel) + self.bias

    def one_hot(self, y: tf.Tensor) -> tf.Tensor:
        if self.labels == "one_hot":
            return y
        return tf.one_hot(tf.cast(tf.reshape(y, [-1]), tf.int32), CLASSES)

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        logarithms = tf.nn.log_softmax(self.logits(x))
        return -tf.reduce_mean(tf.reduce_sum(self.one_hot(y) * logarithms, axis=1))

    def step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        hidden, wanted = self.hidden(x), self.one_hot(y)
        logarithms = tf.nn.log_softmax(tf.matmul(hidden, self.kernel) + self.bias)
        error = (tf.exp(logarithms) - wanted) / tf.cast(tf.shape(x)[0], tf.float32)
        inner = tf.matmul(error, self.kernel, transpose_b=True) * tf.cast(hidden > 0, tf.float32)
        self.kernel.assign_sub(RATE * tf.matmul(hidden, error, transpose_a=True))
        self.bias.assign_sub(RATE * tf.reduce_sum(error, axis=0))
        self.hidden_kernel.assign_sub(RATE * tf.matmul(x, inner, transpose_a=True))
        self.hidden_bias.assign_sub(RATE * tf.reduce_sum(inner, axis=0))
        return -tf.reduce_mean(tf.reduce_sum(wanted * logarithms, axis=1))

    def numbered(self, prefix: str = "a") -> dict[str, tf.Tensor]:
        return {f"{prefix}{i}": tf.identity(v) for i, v in enumerate(self.weights)}

    def assign(self, **values: tf.Tensor) -> None:
        """Assign the values in the order of the variables' names."""
        for weight, name in zip(self.weights, sorted(values), strict=True):
            weight.assign(values[name])


class Taped(Perceptron):
    """The same with a GradientTape, as authors usually write it: its step needs Flex ops."""

    def step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(self.one_hot(y), self.logits(x)))
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(RATE * gradient)
        return loss


def spec(shape: Any, dtype: Any = tf.float32, name: str | None = None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype, name)


def of_x(rows: int | None = None) -> tf.TensorSpec:
    return spec([rows, FEATURES])


def of_y(labels: str = "one_hot", rows: int | None = None) -> tf.TensorSpec:
    return (
        spec([rows, CLASSES]) if labels == "one_hot" else spec([rows], tf.int32 if labels == "sparse" else tf.float32)
    )


def function(call: Callable[..., dict[str, tf.Tensor]], **inputs: tf.TensorSpec) -> Any:
    """Trace a function of named inputs."""
    return tf.function(call, autograph=False).get_concrete_function(**inputs)


def checkpoint(weights: list[tf.Variable], shape: Any, name: str = "checkpoint_path") -> tuple[Any, Any]:
    """Return `save` and `restore` as in "On-Device Training with TensorFlow Lite"."""
    names = [v.name.partition(":")[0] for v in weights]

    def save(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        path = tf.reshape(inputs[name], [])
        tf.raw_ops.Save(filename=path, tensor_names=names, data=[v.read_value() for v in weights])
        return {name: inputs[name]}

    def restore(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        path = tf.reshape(inputs[name], [])
        restored = {}
        for key, v in zip(names, weights, strict=True):
            restored[key] = tf.raw_ops.Restore(file_pattern=path, tensor_name=key, dt=v.dtype)
            v.assign(tf.ensure_shape(restored[key], v.shape))
        return restored

    path = {name: spec(shape, tf.string)}
    return function(save, **path), function(restore, **path)


def convert(model: tf.Module, signatures: Signatures, path: Path, *, flex: bool) -> None:
    saved = path.with_suffix(".saved")
    tf.saved_model.save(model, str(saved), signatures=signatures)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved), signature_keys=list(signatures))
    builtin, select = tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS
    converter.target_spec.supported_ops = [builtin, *([select] if flex else [])]
    converter.experimental_enable_resource_variables = True
    path.write_bytes(converter.convert())


def write(
    path: Path,
    model: Any,
    signatures: Signatures,
    roles: Mapping[str, Any],
    *,
    flex: bool = False,
    rows: int | None = None,
    **facts: Any,
) -> None:
    """Convert a model and write its description.

    Args:
        path: The `.tflite` file.
        model: The owner of the variables and of `weights`.
        signatures: The signatures.
        roles: The signature's name by role, or its name and its own names of inputs and outputs.
        flex: Whether Flex ops are allowed.
        rows: The rows of a batch; None for any number.
        facts: Other differences from the usual description, see `dialects.Dialect`.
    """
    convert(model, signatures, path, flex=flex)
    described = {role: {"name": role} if own is True else own for role, own in roles.items()}
    description = {
        "signatures": described,
        "x_shape": [FEATURES],
        "classes": CLASSES,
        "labels": getattr(model, "labels", "one_hot"),
        "rows": rows,
        "flex": flex,
        "weights": [v.name.partition(":")[0] for v in model.weights],
        "learning_rate": RATE,
        **facts,
    }
    path.with_suffix(".json").write_text(json.dumps(description))


def train(model: Any, x: str = "x", y: str = "y", loss: str = "loss") -> Callable[..., dict[str, tf.Tensor]]:
    """Return a step with its own names of inputs and output."""
    return lambda **inputs: {loss: model.step(inputs[x], inputs[y])}


def infer(model: Any, x: str = "x", output: str = "output") -> Callable[..., dict[str, tf.Tensor]]:
    """Return an inference with its own names of input and output."""
    return lambda **inputs: {output: model.logits(inputs[x])}


def reads(model: Any, name: Callable[[int], str]) -> Callable[[], dict[str, tf.Tensor]]:
    """Return a function that returns the weights under own names."""
    return lambda: {name(i): tf.identity(v) for i, v in enumerate(model.weights)}


def writes(model: Any, name: Callable[[int], str]) -> tuple[Callable[..., dict[str, tf.Tensor]], dict[str, Any]]:
    """Return a function that assigns the weights by own names, and its inputs."""

    def assign(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        for i, v in enumerate(model.weights):
            v.assign(values[name(i)])
        return {"count": tf.constant(len(model.weights))}

    return assign, {name(i): spec(v.shape, v.dtype) for i, v in enumerate(model.weights)}
