"""`train_epoch`, `predict`, `eval`, `evaluate`, `initialize`, `compute_loss`."""

from pathlib import Path

import tensorflow as tf

from dialects.models import Perceptron, function, infer, of_x, of_y, reads, train, write, writes


def write_all(folder: Path) -> None:
    model = Perceptron()
    shipped = [v.numpy() for v in model.weights]

    def initialize() -> dict[str, tf.Tensor]:
        for v, value in zip(model.weights, shipped, strict=True):
            v.assign(value)
        return {"initialized": tf.constant(True)}

    def evaluate(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        right = tf.equal(tf.argmax(model.logits(x), 1), tf.argmax(y, 1))
        return {"loss": model.loss(x, y), "accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}

    set_weights, weights = writes(model, lambda i: f"p{i}")
    batch = {"x": of_x(), "y": of_y()}
    signatures = {
        "train_epoch": function(train(model, "x", "y", "l"), **batch),
        "predict": function(infer(model, output="result"), x=of_x()),
        "eval": function(infer(model), x=of_x()),
        "evaluate": function(evaluate, **batch),
        "initialize": function(initialize),
        "compute_loss": function(lambda x, y: {"loss": model.loss(x, y)}, **batch),
        "get_parameters": function(reads(model, lambda i: f"p{i}")),
        "set_parameters": function(set_weights, **weights),
    }
    roles = {
        "train": {"name": "train_epoch", "x": "x", "y": "y", "loss": "l"},
        "infer": {"name": "predict", "x": "x", "output": "result"},
        "evaluate": {"name": "evaluate", "x": "x", "y": "y", "loss": "loss"},
        "initialize": {"name": "initialize"},
        "parameters": {"name": "get_parameters"},
        "restore": {"name": "set_parameters"},
    }
    write(folder / "train_epoch.tflite", model, signatures, roles)
