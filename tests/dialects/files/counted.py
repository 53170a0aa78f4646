"""Only own names, several outputs, and an optimizer state with an int64 count, with and without signatures for it."""

from pathlib import Path

import tensorflow as tf

from dialects.models import Perceptron, Signatures, function, of_x, of_y, spec, write


class Counted(Perceptron):
    """A model that counts its steps and averages their losses."""

    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(0, dtype=tf.int64, name="optimizer/count")
        self.average = tf.Variable(0.5, name="optimizer/average")

    def learn(self, image: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
        right = tf.equal(tf.argmax(self.logits(image), 1), tf.argmax(label, 1))
        found = {"accuracy": tf.reduce_mean(tf.cast(right, tf.float32)), "loss": self.step(image, label)}
        self.count.assign_add(1)
        self.average.assign(0.75 * self.average + 0.25 * found["loss"])
        return found

    def classify(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(self.logits(image))
        return {"best": tf.argmax(probabilities, 1, tf.int32), "probabilities": probabilities}


def state(model: Counted) -> Signatures:
    """Return the state's signatures as written by `odt-sim deflex`: numbered in their own order, in int32."""

    def read() -> dict[str, tf.Tensor]:
        average, count = (tf.gather(tf.reshape(v, [1]), 0) for v in (model.average, model.count))
        return {"s0": average, "s1": tf.cast(count, tf.int32)}

    def assign(s0: tf.Tensor, s1: tf.Tensor) -> dict[str, tf.Tensor]:
        model.average.assign(s0)
        model.count.assign(tf.cast(s1, tf.int64))
        return {"count": tf.constant(2)}

    restore = function(assign, s0=spec([]), s1=spec([], tf.int32))
    return {"optimizer_state": function(read), "restore_optimizer_state": restore}


def write_all(folder: Path) -> None:
    roles = {
        "train": {"name": "learn", "x": "image", "y": "label", "loss": "loss"},
        "infer": {"name": "classify", "x": "image", "output": "probabilities"},
    }
    for name, signatures_of_state in (("counted", state), ("counted_closed", lambda model: {})):
        model = Counted()
        signatures = {
            "learn": function(model.learn, image=of_x(4), label=of_y(rows=4)),
            "classify": function(model.classify, image=of_x(4)),
            **signatures_of_state(model),
        }
        write(folder / f"{name}.tflite", model, signatures, roles, rows=4)
