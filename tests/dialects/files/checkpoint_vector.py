"""`save` and `restore` with a checkpoint path of shape `[1]`."""

from pathlib import Path

from dialects.files.checkpoint_scalar import classic


def write_all(folder: Path) -> None:
    classic(folder, "checkpoint_vector", [1])
