"""The class-based way to a trainable model: a class with `train`, `infer`, `parameters` and `restore` of the author's own.

    @tflite_model_class
    class Network(BaseTFLiteModel):
        X_SHAPE, Y_SHAPE = [28, 28, 1], [10]

        def __init__(self):
            self.model = keras.Sequential([...])
            self.model.compile(optimizer="sgd", loss="categorical_crossentropy")

    save_model(Network(), "saved_model")
    save_tflite_model(convert_saved_model("saved_model"), "network.tflite")

A class written for Keras 2 needs no change: see `keras2.add_keras2_names`.
"""

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.keras2_names import add_keras2_names
from odt_sim.export.saved_model import converted, write_saved_model
from odt_sim.export.user_functions import as_function, trace_functions
from odt_sim.export.user_parameters import names_of_weights
from odt_sim.files import write_file
from odt_sim.model.contract import REQUIRED

Class = TypeVar("Class", bound=type)

SAVED_MODEL_DIR = "saved_model"

add_keras2_names()


class BaseTFLiteModel(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """What a model class inherits from: set `X_SHAPE`, `Y_SHAPE` and, in `__init__`, a compiled `model`.

    Each of `train`, `infer`, `parameters` and `restore` may be overridden. Further public methods become signatures, too:
    those that return a dictionary and take `x` or `x, y`, or are a `tf.function` with an `input_signature`; and `initialize`.

    Attributes:
        X_SHAPE: The shape of one example, float32.
        Y_SHAPE: The shape of one target, float32.
        BATCH_SIZE: The rows of a batch; None for any number of them. A fixed one trains faster.
        model: A compiled Keras model.
    """

    X_SHAPE: ClassVar[Sequence[int]]
    Y_SHAPE: ClassVar[Sequence[int]]
    BATCH_SIZE: ClassVar[int | None] = None
    model: Any

    def train(self, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        """Trains on a batch; returns its `loss`, and its metrics."""
        return self.model.train_step((x, y))  # type: ignore[no-any-return]

    def infer(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the model's output as `logits`."""
        return {"logits": self.model(x)}

    def parameters(self) -> dict[str, tf.Tensor]:
        """Returns the weights as `a0..aN`."""
        return {f"a{i}": weight.read_value() for i, weight in enumerate(self.model.weights)}

    def restore(self, **parameters: tf.Tensor) -> dict[str, tf.Tensor]:
        """Sets the weights from `a0..aN`, and returns them."""
        for i, weight in enumerate(self.model.weights):
            weight.assign(parameters[f"a{i}"])
        return self.parameters()


def tflite_model_class(cls: Class) -> Class:
    """Makes the methods `train`, `infer`, `parameters` and `restore` of a model class functions of TensorFlow.

    The arguments of `train` and `infer` are float32 `[batch, *X_SHAPE]` and `[batch, *Y_SHAPE]`; `train` may also take
    `sample_weight` (`[batch]`), `learning_rate` and `mu` (`[]`).

    Raises:
        ExportError: A method has another argument.
    """
    for name in REQUIRED:
        setattr(cls, name, as_function(cls, name))
    return cls


def save_model(model: tf.Module, saved_model_dir: str | os.PathLike[str]) -> list[NDArray[Any]]:
    """Writes a SavedModel that has a model's signatures, for `convert_saved_model` or TensorFlow itself.

    Args:
        model: The object of a class decorated by `tflite_model_class`, or a `tf.Module` whose own `tf.function`s are named
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
) -> bytes:
    """Converts the signatures of a SavedModel to a `.tflite` file that trains on any LiteRT interpreter.

    What `parameters` hands out are the weights. Other variables that the signatures change and read, such as an optimizer's
    slots, are handed out by `optimizer_state` as `s0..sM` and taken back by `restore_optimizer_state`, which are added;
    variables that are only read become constants.

    Args:
        saved_model_dir: What `save_model` wrote, or anyone else whose signatures are `train`, `infer`, `parameters` and
            `restore`.
        signature_keys: The signatures to convert; None converts all.
        batch_size: The rows of a batch where the SavedModel leaves their number open, which trains faster; None leaves it so.

    Returns:
        The file's content.

    Raises:
        ExportError: The directory holds no SavedModel, a signature is missing, or an op cannot be lowered.
    """
    return converted(Path(saved_model_dir), signature_keys, batch_size)


def save_tflite_model(tflite_model: bytes, tflite_file: str | os.PathLike[str]) -> None:
    """Writes the content of a `.tflite` file.

    Raises:
        FileError: The file cannot be written.
    """
    write_file(Path(tflite_file), tflite_model)
