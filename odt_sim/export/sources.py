"""Load the model of an export: a Keras model, a file that Keras wrote, a SavedModel, or a PyTorch module."""

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import h5py
import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.parameters import NORMALIZING, unique
from odt_sim.export.torch.module import is_module, keras_model
from odt_sim.export.trace.tracing import Function

ENDPOINTS = ("serving_default", "serve")  # the default names of TensorFlow and of Keras 3


class Weights(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """A layer that only holds the variables of one layer of a SavedModel, under their names."""

    def __init__(self, variables: Sequence[tf.Variable], scope: str, *, trainable: bool, **settings: Any) -> None:
        super().__init__(trainable=trainable, **settings)
        self.normalizes = any(_name(v) in NORMALIZING for v in variables)
        with ExitStack() as scopes:
            for part in filter(None, scope.split("/")):
                scopes.enter_context(keras.name_scope(part))
            for v in variables:
                # Wrap the SavedModel's variable, so that its signature reads the trained value.
                own = keras.Variable(v, trainable=trainable, dtype=v.dtype.name, shape=tuple(v.shape), name=_name(v))
                self._track_variable(own)
        self.built = True


class Served(keras.Model):  # type: ignore[misc]
    """A model that computes a signature of a SavedModel, in training, too."""

    def __init__(self, function: Function, argument: str, layers: Sequence[Weights]) -> None:
        super().__init__(name="saved_model")
        self.function, self.argument, self.weights_of_layers = function, argument, list(layers)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the only output of the signature."""
        (output,) = self.function(**{self.argument: inputs}).values()
        return output


def served_model(path: Path) -> keras.Model:
    """Return a SavedModel from Keras' `model.export` or an older `model.save` as a Keras model.

    Its trainable variables are trained. Training uses the serving signature: BatchNormalization keeps its statistics, and
    Dropout is inactive.
    """
    loaded = load(path)
    function = _serving(loaded, path)
    _, inputs = function.structured_input_signature
    if len(inputs) != 1 or len(function.structured_outputs) != 1:
        found = f"{len(inputs)} and {len(function.structured_outputs)}"
        raise ExportError(
            f"{path}: expected a signature with one input and one output, found {found}; save such a signature"
        )
    ((argument, spec),) = inputs.items()
    layers = _layers(function.variables)
    x = keras.Input(tuple(spec.shape[1:]), dtype=spec.dtype.name)
    return keras.Model(x, Served(function, argument, layers)(x), name=path.name)


def load(path: Path) -> Any:
    """Load a SavedModel."""
    try:
        return tf.saved_model.load(str(path))
    except (OSError, ValueError, tf.errors.OpError) as error:
        line = str(error).strip().partition("\n")[0]
        raise ExportError(f"{path}: not a readable SavedModel ({line}); give the directory of a SavedModel") from error


def _serving(loaded: Any, path: Path) -> Function:
    signatures = dict(loaded.signatures)
    if "train" in signatures:
        raise ExportError(f"{path}: has its own signature 'train'; use odt_sim.export.convert_saved_model")
    wanted = [name for name in ENDPOINTS if name in signatures] or list(signatures)
    if (len(wanted) > 1 and wanted[0] not in ENDPOINTS) or not wanted:
        names = ", ".join(signatures) or "none"
        raise ExportError(f"{path}: expected a signature {ENDPOINTS[0]!r}, found {names}; save it with model.export")
    return signatures[wanted[0]]


def _layers(variables: Sequence[tf.Variable]) -> list[Weights]:
    """Return the variables grouped by layer, in order; non-trainable variables form separate, frozen layers."""
    parts: dict[tuple[str, bool], list[tf.Variable]] = {}
    for v in variables:
        parts.setdefault((v.name.rpartition("/")[0], v.trainable), []).append(v)
    names = unique([scope.rpartition("/")[2] or "variables" for scope, _ in parts])
    return [
        Weights(own, scope, trainable=trainable, name=name)
        for ((scope, trainable), own), name in zip(parts.items(), names, strict=True)
    ]


def _name(variable: tf.Variable) -> str:
    return str(variable.name.rpartition("/")[2].partition(":")[0])


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
