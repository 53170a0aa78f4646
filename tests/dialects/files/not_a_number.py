"""NaN in a shipped weight."""

from pathlib import Path

import numpy as np

from dialects.models import Perceptron, function, infer, of_x, of_y, reads, train, write, writes


def write_all(folder: Path) -> None:
    model = Perceptron()
    model.hidden_kernel.assign(np.where(np.arange(30).reshape(6, 5) == 7, np.nan, model.hidden_kernel.numpy()))
    restore, weights = writes(model, lambda i: f"a{i}")
    signatures = {
        "train": function(train(model), x=of_x(), y=of_y()),
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
    write(folder / "not_a_number.tflite", model, signatures, roles)
