"""What `export_model` takes for a model: a Keras model, a file that Keras wrote, or a SavedModel."""

import os
from pathlib import Path
from typing import Any

import keras

from odt_sim.errors import ExportError
from odt_sim.export.serving_model import served_model

SUFFIXES = (".keras", ".h5", ".hdf5")


def model_of(source: Any) -> Any:
    """Returns the Keras model of a source; what is no path is returned as it is.

    Args:
        source: A Keras model, or the path of a `.keras` or `.h5` file of a whole model, or of a SavedModel's directory.

    Raises:
        ExportError: The path holds no model that can be read.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    path = Path(source)
    if path.is_dir():
        return served_model(path)
    if not path.exists():
        raise ExportError(
            f"{path}: no such file; give a Keras model, a .keras or .h5 file, or a SavedModel's directory"
        )
    if path.suffix not in SUFFIXES:
        raise ExportError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}; save the model by model.save")
    return _loaded(path)


def _loaded(path: Path) -> keras.Model:
    try:
        return keras.saving.load_model(path, compile=False)
    except Exception as error:  # Keras and its readers raise types of all kinds
        line = " ".join(str(error).split())[:200]
        raise ExportError(
            f"{path}: Keras cannot load a whole model from it ({line}); save it by model.save, and give a model with classes "
            "of its own as an object"
        ) from error
