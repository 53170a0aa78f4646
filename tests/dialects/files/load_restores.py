"""`load` sets the weights: `save` and `load` take a checkpoint path."""

from pathlib import Path

from dialects.models import Taped, checkpoint, function, infer, of_x, of_y, train, write


def write_all(folder: Path) -> None:
    model = Taped()
    save, load = checkpoint(model.weights, [], "path")
    signatures = {
        "train": function(train(model, "data", "target"), data=of_x(), target=of_y()),
        "infer": function(infer(model, "data"), data=of_x()),
        "save": save,
        "load": load,
    }
    roles = {
        "train": {"name": "train", "x": "data", "y": "target", "loss": "loss"},
        "infer": {"name": "infer", "x": "data", "output": "output"},
        "save": {"name": "save", "checkpoint_path": "path"},
        "load": {"name": "load", "checkpoint_path": "path"},
    }
    write(folder / "load_restores.tflite", model, signatures, roles, flex=True)
