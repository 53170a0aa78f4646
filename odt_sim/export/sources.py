"""Load the model of an export: a Keras model, a file that Keras wrote, a SavedModel, or a PyTorch module."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import h5py
import keras

from odt_sim.errors import ExportError
from odt_sim.export.pytorch.module import is_module, keras_model
from odt_sim.export.served_model import served_model

SUFFIXES = (".keras", ".h5", ".hdf5")
PYTORCH = (".pt", ".pth", ".pt2")
FROM_KERAS_2 = "save it there with model.save('model.h5'), and export that file"
OF_OLD_LAYERS = "build the model with Keras 3, load this file with model.load_weights, and pass the model as an object"


def model_of(source: Any, example: Any = None, batch_size: int | None = None, *, compiled: bool = False) -> Any:
    """Return the Keras model of a source; a source that is neither a path nor a PyTorch module is returned unchanged.

    Args:
        source: A Keras model, the path of a `.keras` or `.h5` file of a whole model, or of a SavedModel directory, or a
            `torch.nn.Module`.
        example: An example of the PyTorch module's input `[rows, ...]`, a tuple of several, or a mapping by the names of
            `forward`'s arguments.
        batch_size: The rows of a PyTorch module's batches.
        compiled: Whether to load the settings that the model was compiled with.

    Raises:
        ExportError: The path does not contain a readable model, or the PyTorch module cannot be traced.
    """
    if is_module(source):
        return keras_model(source, example, batch_size)
    if not isinstance(source, str | os.PathLike):
        return source
    path = Path(source)
    if path.is_dir():
        return served_model(path)
    if not path.exists():
        raise ExportError(
            f"{path}: no such file; give a Keras model, a .keras or .h5 file, or a SavedModel's directory"
        )
    if path.suffix in PYTORCH:
        raise ExportError(
            f"{path}: expected a Keras model, found a file of PyTorch; load it and pass the torch.nn.Module"
        )
    if path.suffix not in SUFFIXES:
        raise ExportError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}; save the model with model.save")
    return _loaded(path, compiled=compiled)


def _loaded(path: Path, *, compiled: bool) -> keras.Model:
    try:
        return keras.saving.load_model(path, compile=compiled)
    except Exception as error:  # Keras and its readers raise many types
        if (version := _version(path)).startswith("2."):
            advice = FROM_KERAS_2 if path.suffix == ".keras" else OF_OLD_LAYERS
            raise ExportError(f"{path}: expected a file of Keras 3, found one of Keras {version}; {advice}") from error
        line = " ".join(str(error).split())[:200]
        raise ExportError(
            f"{path}: Keras cannot load a whole model from it ({line}); save it with model.save, and pass a model "
            "with custom classes as an object"
        ) from error


def _version(path: Path) -> str:
    """Return the version of Keras that wrote a file, or an empty string if the file does not name it."""
    with suppress(BadZipFile, KeyError, TypeError, ValueError, OSError), ZipFile(path) as file:
        return str(json.loads(file.read("metadata.json"))["keras_version"])
    with suppress(KeyError, OSError), h5py.File(path) as file:
        version = file.attrs["keras_version"]
        return version.decode() if isinstance(version, bytes) else str(version)
    return ""
