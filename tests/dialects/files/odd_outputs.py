"""The loss is called `output`, the prediction `result`; another output is a metric; the weights stay inside."""

from pathlib import Path

import tensorflow as tf

from dialects.models import Perceptron, function, infer, of_x, of_y, write


def write_all(folder: Path) -> None:
    model = Perceptron()

    def step(input: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        right = tf.equal(tf.argmax(model.logits(input), 1), tf.argmax(target, 1))
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
        return {"accuracy": accuracy, "output": model.step(input, target)}

    signatures = {
        "train": function(step, input=of_x(), target=of_y()),
        "infer": function(infer(model, "input", "result"), input=of_x()),
    }
    roles = {
        "train": {"name": "train", "x": "input", "y": "target", "loss": "output"},
        "infer": {"name": "infer", "x": "input", "output": "result"},
    }
    write(folder / "odd_outputs.tflite", model, signatures, roles)
