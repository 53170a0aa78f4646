"""`get_weights_for_fl` and `set_weights_from_fl`; `parameters` means the number of weights."""

from pathlib import Path

import tensorflow as tf

from dialects.models import Perceptron, function, infer, of_x, of_y, reads, train, write, writes


def write_all(folder: Path) -> None:
    model = Perceptron()
    set_weights, weights = writes(model, lambda i: f"weight_{i}")
    signatures = {
        "train": function(train(model, "features", "labels"), features=of_x(), labels=of_y()),
        "infer": function(infer(model, "features", "probabilities"), features=of_x()),
        "get_weights_for_fl": function(reads(model, lambda i: f"weight_{i}")),
        "set_weights_from_fl": function(set_weights, **weights),
        "num_parameters": function(lambda: {"count": tf.reduce_sum([tf.size(v) for v in model.weights])}),
    }
    roles = {
        "train": {"name": "train", "x": "features", "y": "labels", "loss": "loss"},
        "infer": {"name": "infer", "x": "features", "output": "probabilities"},
        "parameters": {"name": "get_weights_for_fl"},
        "restore": {"name": "set_weights_from_fl"},
    }
    write(folder / "for_fl.tflite", model, signatures, roles)
