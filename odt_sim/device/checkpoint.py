"""Checkpoints of devices, written atomically with a checksum, and files that contain only weights."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.numpy import load

from odt_sim._support.files import write_file
from odt_sim.data.store.columns import Array
from odt_sim.errors import CheckpointError
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.persistence.storage import Folder
from odt_sim.persistence.tensor_file import METADATA, packed, unpacked


def write_tensors(path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata texts, by name, to a safetensors file with a checksum.

    Raises:
        FileError: The file cannot be written; an earlier file stays intact.
    """
    write_file(path, packed(tensors, metadata))


def _content(path: Path) -> bytes:
    return Folder(path.parent).read(path.name)


def read_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Read the tensors and texts that `write_tensors` wrote.

    Raises:
        CheckpointError: The file is missing, damaged or of another version.
    """
    return unpacked(_content(path), str(path))


def write_checkpoint(
    path: Path, model: TrainableModel, weights: Weights, slots: Sequence[Array], epochs: int, steps: int
) -> None:
    """Write a device's weights, optimizer slots, and the numbers of epochs and steps trained in its round.

    Raises:
        FileError: The file cannot be written.
    """
    tensors = dict(zip(weights.layout.names, weights.tensors(), strict=True))
    tensors |= {f"optimizer.{i}": slot for i, slot in enumerate(slots)}
    write_tensors(path, tensors, {"fingerprint": model.fingerprint, "epochs": str(epochs), "steps": str(steps)})


class Saved(NamedTuple):
    """The content of a device's checkpoint, or of a file that contains only weights.

    Attributes:
        weights: All weights.
        slots: The optimizer's slots; None if the file contains only weights.
        epochs: The epochs trained in the round.
        steps: The steps trained in the round.
    """

    weights: Weights
    slots: list[Array] | None = None
    epochs: int = 0
    steps: int = 0


def read_saved(path: Path, model: TrainableModel) -> Saved:
    """Read a file of `write_checkpoint`, or weights as the phone page saves them: a safetensors file of weights only.

    Raises:
        CheckpointError: The file is missing or damaged, belongs to another model, or is not a device's checkpoint.
        ModelError: A weight has another shape.
    """
    content = _content(path)
    weights = _weights_alone(content, path, model)
    return Saved(weights) if weights is not None else _checkpoint(content, path, model)


def _checkpoint(content: bytes, path: Path, model: TrainableModel) -> Saved:
    tensors, texts = unpacked(content, str(path))
    if texts.get("fingerprint") != model.fingerprint:
        raise CheckpointError(
            f"{path}: belongs to a different model than {model.where}; use a checkpoint of this model"
        )
    slots = [f"optimizer.{i}" for i in range(len(model.slots))]
    if set(tensors) != {*model.layout.names, *slots}:
        raise CheckpointError(f"{path}: is not a device checkpoint; use a file written by `Device.save`")
    weights = Weights.from_tensors(model.layout, [tensors[name] for name in model.layout.names])
    return Saved(weights, [tensors[name] for name in slots], int(texts["epochs"]), int(texts["steps"]))


def _weights_alone(content: bytes, path: Path, model: TrainableModel) -> Weights | None:
    """Return the weights of a `.safetensors` file that only contains weights; None for other files.

    Equal names and shapes do not show that weights mean the same: a later version of the model may scale its inputs in a
    different way. The page therefore writes the fingerprint of its model file into the metadata.
    """
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        metadata = header.get("__metadata__", {})
        if METADATA in metadata or "format_version" in metadata:
            return None
        tensors, origin = load(content), metadata.get("fingerprint", model.fingerprint)
    except (SafetensorError, ValueError, KeyError, AttributeError, RecursionError):  # KeyError: a dtype such as BF16
        return None
    if set(tensors) != set(model.layout.names):
        raise CheckpointError(
            f"{path}: belongs to a different model than {model.where}: expected {', '.join(model.layout.names)}, found "
            f"{', '.join(sorted(tensors))}; use weights of this model"
        )
    if origin != model.fingerprint:
        raise CheckpointError(
            f"{path}: has the weights of a model file with fingerprint {origin[:12]}, expected {model.fingerprint[:12]} of "
            f"{model.where}; restore them with that file, and if they mean the same here, pass on device.parameters()"
        )
    return Weights.from_tensors(model.layout, [tensors[name] for name in model.layout.names])
