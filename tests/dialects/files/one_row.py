"""A static batch of 1."""

from pathlib import Path

from dialects.models import Perceptron, function, infer, of_x, of_y, reads, train, write, writes


def write_all(folder: Path) -> None:
    model = Perceptron()
    restore, weights = writes(model, lambda i: f"a{i}")
    signatures = {
        "train": function(train(model), x=of_x(1), y=of_y(rows=1)),
        "infer": function(infer(model), x=of_x(1)),
        "parameters": function(reads(model, lambda i: f"a{i}")),
        "restore": function(restore, **weights),
    }
    roles = {
        "train": {"name": "train", "x": "x", "y": "y", "loss": "loss"},
        "infer": {"name": "infer", "x": "x", "output": "output"},
        "parameters": {"name": "parameters"},
        "restore": {"name": "restore"},
    }
    write(folder / "one_row.tflite", model, signatures, roles, rows=1)
