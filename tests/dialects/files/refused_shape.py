"""A declared `y [-1, 4]` that the graph refuses: its loss takes class numbers, one per row."""

from pathlib import Path

from dialects.models import Perceptron, function, infer, of_x, reads, spec, train, write, writes


class Refusing(Perceptron):
    """Flattens its targets to class numbers."""

    labels = "sparse_float"


def write_all(folder: Path) -> None:
    model = Refusing()
    restore, weights = writes(model, lambda i: f"a{i}")
    signatures = {
        "train": function(train(model), x=of_x(), y=spec([None, 4])),
        "infer": function(infer(model), x=of_x()),
        "parameters": function(reads(model, lambda i: f"a{i}")),
        "restore": function(restore, **weights),
    }
    roles = {
        "train": {"name": "train", "x": "x", "y": "y", "loss": "loss"},
        "infer": {"name": "infer", "x": "x", "output": "output"},
        "parameters": {"name": "parameters"},
        "restore": {"name": "restore"},
    }
    write(folder / "refused_shape.tflite", model, signatures, roles)
