"""Class numbers as float32: an app passes one array type for everything."""

from pathlib import Path

from dialects.models import Perceptron, function, infer, of_x, of_y, reads, train, write, writes


class SparseFloat(Perceptron):
    """Targets are class numbers in float32."""

    labels = "sparse_float"


def write_all(folder: Path) -> None:
    model = SparseFloat()
    restore, weights = writes(model, lambda i: f"a{i}")
    signatures = {
        "train": function(train(model), x=of_x(), y=of_y("sparse_float")),
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
    write(folder / "sparse_float.tflite", model, signatures, roles)
