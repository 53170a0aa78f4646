"""Neither the weights nor the momentum's velocity can be read or written."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from dialects.models import RATE, Perceptron, function, infer, of_x, of_y, train, write


class Momentum(Perceptron):
    """The classifier alone is trained, with momentum."""

    def __init__(self) -> None:
        super().__init__()
        self.velocity = tf.Variable(np.zeros(self.kernel.shape, np.float32), name="velocity/kernel")

    def step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        hidden = self.hidden(x)
        logarithms = tf.nn.log_softmax(tf.matmul(hidden, self.kernel) + self.bias)
        error = (tf.exp(logarithms) - y) / tf.cast(tf.shape(x)[0], tf.float32)
        self.velocity.assign(0.9 * self.velocity + tf.matmul(hidden, error, transpose_a=True))
        self.kernel.assign_sub(RATE * self.velocity)
        self.bias.assign_sub(RATE * tf.reduce_sum(error, axis=0))
        return -tf.reduce_mean(tf.reduce_sum(y * logarithms, axis=1))


def write_all(folder: Path) -> None:
    roles = {
        "train": {"name": "train", "x": "x", "y": "y", "loss": "loss"},
        "infer": {"name": "infer", "x": "x", "output": "output"},
    }
    for name, model in (("closed", Perceptron()), ("closed_momentum", Momentum())):
        signatures = {
            "train": function(train(model), x=of_x(), y=of_y()),
            "infer": function(infer(model), x=of_x()),
        }
        write(folder / f"{name}.tflite", model, signatures, roles)
