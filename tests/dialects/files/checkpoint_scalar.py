"""`save` and `restore` with a checkpoint path of shape `[]`, as in "On-Device Training with TensorFlow Lite"."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from dialects.models import Taped, checkpoint, function, of_x, of_y, train, write


def classic(folder: Path, name: str, shape: Any) -> None:
    """Write the classic model with a checkpoint path of a shape."""
    model = Taped()
    save, restore = checkpoint(model.weights, shape)

    def infer(x: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = model.logits(x)
        return {"output": tf.nn.softmax(logits), "logits": logits}

    signatures = {
        "train": function(train(model), x=of_x(), y=of_y()),
        "infer": function(infer, x=of_x()),
        "save": save,
        "restore": restore,
    }
    roles = {
        "train": {"name": "train", "x": "x", "y": "y", "loss": "loss"},
        "infer": {"name": "infer", "x": "x", "output": "logits"},
        "save": {"name": "save", "checkpoint_path": "checkpoint_path"},
        "load": {"name": "restore", "checkpoint_path": "checkpoint_path"},
    }
    write(folder / f"{name}.tflite", model, signatures, roles, flex=True)


def write_all(folder: Path) -> None:
    classic(folder, "checkpoint_scalar", [])
