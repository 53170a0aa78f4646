"""A file in which each signature has one fault, written by `python patients.py FOLDER`.

The dialect `numbered` is a healthy file with the same model, except for the second bias.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from dialects.models import CLASSES, RATE, Perceptron, convert, function, of_x, of_y, reads, writes

Tensors = dict[str, tf.Tensor]


class Patient(Perceptron):
    """A perceptron with two biases, and faulty steps, inferences and writers."""

    def __init__(self) -> None:
        super().__init__()
        self.other = tf.Variable(np.zeros(CLASSES, np.float32), name="classifier/other")
        self.total, self.count = (tf.Variable(0.0, name=f"metric/{name}") for name in ("total", "count"))

    @property
    def weights(self) -> list[tf.Variable]:
        return [*super().weights, self.other]

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        return super().logits(x) + self.other

    def step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Return the loss before the step; the second bias gets the gradient of the first."""
        before = self.loss(x, y)
        with tf.control_dependencies([before]):
            old = tf.identity(self.bias)
            super().step(x, y)
            self.other.assign_add(self.bias - old)
        return before

    # --- losses

    def step_mean(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        self.total.assign_add(self.step(x, y))
        self.count.assign_add(1.0)
        return self.total / self.count

    def step_swapped(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        probabilities = tf.nn.softmax(self.logits(x))
        loss = -tf.reduce_sum(probabilities * tf.math.log(tf.clip_by_value(y, 1e-7, 1 - 1e-7)), axis=1)
        with tf.control_dependencies([loss]):
            self.step(x, y)
        return tf.reduce_mean(loss)

    def step_sum(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return self.step(x, y) * tf.cast(tf.shape(x)[0], tf.float32)

    def step_after(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([self.step(x, y)]):
            return self.loss(x, y)

    def step_other(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return self.step(x, y) * 0.3 + tf.reduce_mean(x * x)

    def step_nan(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(-1.0 - self.step(x, y))

    # --- steps

    def step_nothing(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        loss = self.loss(x, y)
        for weight in self.weights:
            weight.assign_add(tf.fill(weight.shape, tf.nn.relu(-loss)))
        return loss

    def step_partly(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        loss = self.loss(x, y)
        for weight in self.weights[2:]:
            weight.assign_add(tf.fill(weight.shape, RATE * loss))
        return loss

    def step_wildly(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        loss = self.loss(x, y)
        for weight in self.weights:
            weight.assign_add(tf.fill(weight.shape, loss * 3e38))
        return loss

    # --- inferences

    def infer_noisily(self, x: tf.Tensor) -> tf.Tensor:
        return self.logits(x) + tf.random.uniform(tf.shape(self.logits(x)), seed=3)

    def infer_together(self, x: tf.Tensor) -> tf.Tensor:
        return self.logits(x) - tf.reduce_mean(self.logits(x), axis=0)

    def infer_and_train(self, x: tf.Tensor) -> tf.Tensor:
        logits = self.logits(x)
        self.bias.assign_add(0.01 * tf.reduce_mean(logits, axis=0))
        return logits

    def infer_without_relu(self, x: tf.Tensor) -> tf.Tensor:
        return self.logits(x) + tf.nn.relu(tf.matmul(2.0 * x, self.hidden_kernel))[:, :CLASSES]


def main(path: Path) -> None:
    model, signatures = Patient(), {}
    for name in ("train", *(name for name in vars(Patient) if name.startswith("step_"))):
        step = getattr(model, "step" if name == "train" else name)
        signatures[name] = function(returning("loss", step), x=of_x(), y=of_y())
    for name in ("infer", *(name for name in vars(Patient) if name.startswith("infer_"))):
        infer = getattr(model, "logits" if name == "infer" else name)
        signatures[name] = function(returning("output", infer), x=of_x())
    signatures["parameters"] = function(reads(model, lambda i: f"a{i}"))
    inputs = {f"a{i}": tf.TensorSpec(v.shape, v.dtype) for i, v in enumerate(model.weights)}
    for name, order in (("restore", "01234"), ("restore_swapped", "01243"), ("restore_partly", "01233")):
        signatures[name] = function(writer(model, order), **inputs)
    convert(model, signatures, path, flex=False)


def returning(name: str, call: Callable[..., tf.Tensor]) -> Callable[..., Tensors]:
    return lambda **inputs: {name: call(**inputs)}


def writer(model: Any, order: str) -> Callable[..., Tensors]:
    """Return a function that assigns the weights from inputs in some order."""
    assign, _ = writes(model, lambda i: f"a{order[i]}")
    return lambda **values: assign(**values)


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "patient.tflite")
