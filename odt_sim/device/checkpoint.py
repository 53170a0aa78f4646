"""Files of tensors that are written whole or not at all, and tell when they were damaged."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from odt_sim.errors import CheckpointError
from odt_sim.files import write_file
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights

FORMAT_VERSION = "1"

Array = NDArray[Any]


def write_tensors(
    path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str], *, synced: bool = True
) -> None:
    """Writes tensors and texts as one safetensors file with a checksum.

    Args:
        path: Where.
        tensors: The tensors by name.
        metadata: The texts by name.
        synced: Whether it is on the disk when this returns; see `write_file`.

    Raises:
        FileError: The file cannot be written; what was there before is untouched.
    """
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    texts = {**metadata, "format_version": FORMAT_VERSION}
    texts["checksum"] = _checksum(arrays, texts)
    write_file(path, safetensors.numpy.save(arrays, texts), synced=synced)


def read_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Reads what `write_tensors` wrote.

    Raises:
        CheckpointError: The file is missing, damaged or of a later version.
    """
    try:
        content = path.read_bytes()
        arrays = safetensors.numpy.load(content)
        texts, padding = _header(content)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such checkpoint") from error
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: damaged or no checkpoint ({error}); use an earlier one") from error
    version = texts.get("format_version", "")
    if version.isdecimal() and int(version) > int(FORMAT_VERSION):
        raise CheckpointError(
            f"{path}: format version {version}, this odt_sim reads up to {FORMAT_VERSION}; upgrade odt_sim"
        )
    checksum = texts.pop("checksum", None)
    if checksum != _checksum(arrays, texts) or padding.strip(b" "):
        raise CheckpointError(f"{path}: damaged, its checksum does not fit its content; use an earlier one")
    del texts["format_version"]
    return arrays, texts


def write_checkpoint(path: Path, model: TrainableModel, weights: Weights, slots: Sequence[Array], epochs: int) -> None:
    """Writes what a device holds: its weights, the optimizer's slots, and the epochs it has trained for in its round.

    Raises:
        FileError: The file cannot be written.
    """
    tensors = dict(zip(weights.layout.names, weights.tensors(), strict=True))
    tensors |= {f"optimizer.{i}": slot for i, slot in enumerate(slots)}
    write_tensors(path, tensors, {"fingerprint": model.fingerprint, "epochs": str(epochs)})


def read_checkpoint(path: Path, model: TrainableModel) -> tuple[Weights, list[Array], int]:
    """Reads what `write_checkpoint` wrote: weights, slots and epochs.

    Raises:
        CheckpointError: The file is missing, damaged, of another model or of something else than a device.
    """
    tensors, texts = read_tensors(path)
    if texts.get("fingerprint") != model.fingerprint:
        raise CheckpointError(f"{path}: a checkpoint of another model than {model.where}; use one of this model")
    slots = [f"optimizer.{i}" for i in range(len(model.slots))]
    if set(tensors) != {*model.layout.names, *slots}:
        raise CheckpointError(f"{path}: no checkpoint of a device; use a file that `Device.save` wrote")
    weights = Weights.from_tensors(model.layout, [tensors[name] for name in model.layout.names])
    return weights, [tensors[name] for name in slots], int(texts["epochs"])


def _header(content: bytes) -> tuple[dict[str, str], bytes]:
    """Returns a file's texts, and what stands between the header's last brace and the tensors.

    These are the only bytes that no checksum covers.
    """
    header = content[8 : 8 + int.from_bytes(content[:8], "little")]
    end = header.rindex(b"}") + 1
    return dict(json.loads(header[:end]).get("__metadata__", {})), header[end:]


def _checksum(arrays: Mapping[str, Array], texts: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(texts.items())).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
