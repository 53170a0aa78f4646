"""`train`, `infer`, `parameters`, `restore` with the weights as `a0..aN`."""

from pathlib import Path

from dialects.models import Perceptron, function, infer, of_x, of_y, reads, train, write, writes


def write_all(folder: Path) -> None:
    model = Perceptron()
    restore, weights = writes(model, lambda i: f"a{i}")
    signatures = {
        "train": function(train(model), x=of_x(), y=of_y()),
        "infer": function(infer(model, output="logits"), x=of_x()),
        "parameters": function(reads(model, lambda i: f"a{i}")),
        "restore": function(restore, **weights),
    }
    roles = {
        "train": {"name": "train", "x": "x", "y": "y", "loss": "loss"},
        "infer": {"name": "infer", "x": "x", "output": "logits"},
        "parameters": {"name": "parameters"},
        "restore": {"name": "restore"},
    }
    write(folder / "numbered.tflite", model, signatures, roles)
