"""`get_weights` and `set_weights`, with the weights under names of their own, in two orders."""

from pathlib import Path

from dialects.models import Perceptron, function, infer, of_x, of_y, reads, train, write, writes

NAMES = ("w1", "b1", "w2", "b2")


def write_all(folder: Path) -> None:
    model = Perceptron()
    set_weights, weights = writes(model, lambda i: NAMES[i])
    signatures = {
        "train": function(train(model), x=of_x(), y=of_y()),
        "infer": function(infer(model), x=of_x()),
        "get_weights": function(reads(model, lambda i: NAMES[i])),
        "set_weights": function(set_weights, **weights),
    }
    roles = {
        "train": {"name": "train", "x": "x", "y": "y", "loss": "loss"},
        "infer": {"name": "infer", "x": "x", "output": "output"},
        "parameters": {"name": "get_weights"},
        "restore": {"name": "set_weights"},
    }
    write(folder / "get_set_weights.tflite", model, signatures, roles)
