"""Export model classes: a class with its own `train`, `infer`, `parameters` and `restore`.

    @tflite_model_class
    class Network(BaseTFLiteModel):
        X_SHAPE, Y_SHAPE = [28, 28, 1], [10]

        def __init__(self):
            self.model = keras.Sequential([...])
            self.model.compile(optimizer="sgd", loss="categorical_crossentropy")

    save_model(Network(), "saved_model")
    save_tflite_model(convert_saved_model("saved_model"), "network.tflite")

Classes written for Keras 2 run unchanged: see `keras2_names.add_keras2_names`.
"""

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import tensorflow as tf
from numpy.typing import NDArray

from odt_sim._support.files import write_file
from odt_sim.export.trace.saved_model import converted, write_saved_model
from odt_sim.export.trace.user_functions import (
    add_keras2_names,
    as_function,
    check_shapes,
    named_outputs,
    trace_functions,
)
from odt_sim.export.trace.user_parameters import names_of_weights
from odt_sim.model.contract.signatures import REQUIRED

Class = TypeVar("Class", bound=type)

SAVED_MODEL_DIR = "saved_model"

add_keras2_names()


class BaseTFLiteModel(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """The base of model classes: set `X_SHAPE`, `Y_SHAPE` and, in `__init__`, a compiled `model`.

    `train`, `infer`, `parameters` and `restore` may be overridden. Further public methods become signatures if they
    return a dictionary and accept `x` or `x, y`, or are a `tf.function` with an `input_signature`; so does
    `initialize`.

    Attributes:
        X_SHAPE: The shape of one example, float32; for a Keras model of several inputs, a mapping of shapes by their names,
            and methods get a mapping as `x`.
        Y_SHAPE: The shape of one target, float32; for several outputs, a mapping of shapes by their names.
        BATCH_SIZE: The number of rows in a batch; None for any number. A fixed number trains faster.
        model: A compiled Keras model.
    """

    X_SHAPE: ClassVar[Sequence[int] | Mapping[str, Sequence[int]]]
    Y_SHAPE: ClassVar[Sequence[int] | Mapping[str, Sequence[int]]]
    BATCH_SIZE: ClassVar[int | None] = None
    model: Any

    def train(self, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        """Train on a batch; return its `loss` and metrics."""
        check_shapes(type(self), self.model)
        return self.model.train_step((x, y))  # type: ignore[no-any-return]

    def infer(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the model's output as `logits`, or each of several as `logits_<name>`."""
        return named_outputs(self.model, self.model(x))

    def parameters(self) -> dict[str, tf.Tensor]:
        """Return the weights as `a0..aN`."""
        return {f"a{i}": weight.read_value() for i, weight in enumerate(self.model.weights)}

    def restore(self, **parameters: tf.Tensor) -> dict[str, tf.Tensor]:
        """Set the weights from `a0..aN` and return them."""
        for i, weight in enumerate(self.model.weights):
            weight.assign(parameters[f"a{i}"])
        return self.parameters()


def tflite_model_class(cls: Class) -> Class:
    """Turn the methods `train`, `infer`, `parameters` and `restore` of a model class into `tf.function`s.

    The arguments of `train` and `infer` are float32 `[batch, *X_SHAPE]` and `[batch, *Y_SHAPE]`; `train` may also
    accept `sample_weight` (`[batch]`), `learning_rate` and `mu` (`[]`).

    Raises:
        ExportError: A method has another argument.
    """
    for name in REQUIRED:
        setattr(cls, name, as_function(cls, name))
    return cls


def save_model(model: tf.Module, saved_model_dir: str | os.PathLike[str]) -> list[NDArray[Any]]:
    """Write a SavedModel with a model's signatures, for `convert_saved_model` or TensorFlow itself.

    Args:
        model: An object of a class decorated by `tflite_model_class`, or a `tf.Module` with its own `tf.function`s named
            `train`, `infer`, `parameters` and `restore`. See `BaseTFLiteModel` for further signatures.
        saved_model_dir: The directory.

    Returns:
        The weights, in the order `a0..aN`.

    Raises:
        ExportError: A function is missing or cannot be traced, or the directory cannot be written.
    """
    functions = trace_functions(model)
    names = names_of_weights(functions["parameters"].structured_outputs)
    own = inspect.getattr_static(type(model), "train")
    keras_step = inspect.unwrap(own.python_function) is BaseTFLiteModel.train
    write_saved_model(model, functions, Path(saved_model_dir), steps_of_keras=keras_step)
    values = functions["parameters"]()
    return [values[name].numpy() for name in names]


def convert_saved_model(
    saved_model_dir: str | os.PathLike[str],
    *,
    signature_keys: Sequence[str] | None = None,
    batch_size: int | None = None,
    check: bool = True,
) -> bytes:
    """Convert the signatures of a SavedModel to a `.tflite` file that trains on any LiteRT interpreter.

    The tensors of `parameters` are the weights. Other variables that the signatures change and read, such as optimizer slots,
    are returned by the added signature `optimizer_state` as `s0..sM` and set by `restore_optimizer_state`. Variables that
    are only read become constants.

    Args:
        saved_model_dir: A directory from `save_model`, or any SavedModel with signatures `train`, `infer`, `parameters`
            and `restore`.
        signature_keys: The signatures to convert; None converts all.
        batch_size: The number of rows in a batch if the SavedModel leaves it open; a fixed number trains faster. None
            keeps it open.
        check: Whether to compare the file with the SavedModel in TensorFlow.

    Returns:
        The file's content.

    Raises:
        ExportError: The directory contains no SavedModel, a signature is missing, or an op cannot be lowered.
    """
    return converted(Path(saved_model_dir), signature_keys, batch_size, check=check)


def save_tflite_model(tflite_model: bytes, tflite_file: str | os.PathLike[str]) -> None:
    """Write the content of a `.tflite` file.

    Raises:
        FileError: The file cannot be written.
    """
    write_file(Path(tflite_file), tflite_model)
