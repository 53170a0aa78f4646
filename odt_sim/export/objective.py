"""Losses and optimizers of a training step, as the caller gives them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.model.manifest import REGRESSIONS

_LOSSES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
    "binary_crossentropy": keras.losses.BinaryCrossentropy,
    "kl_divergence": keras.losses.KLDivergence,
    "mean_squared_error": keras.losses.MeanSquaredError,
    "mean_absolute_error": keras.losses.MeanAbsoluteError,
    "huber": keras.losses.Huber,
    "cosine_similarity": keras.losses.CosineSimilarity,
}
_SHORT = {"mse": "mean_squared_error", "mae": "mean_absolute_error"}
_PROBABILITIES = {  # the op before an output of probabilities
    "sparse_categorical_crossentropy": "Softmax",
    "categorical_crossentropy": "Softmax",
    "binary_crossentropy": "Sigmoid",
}
_FIXED = {"reduction": "sum_over_batch_size", "axis": -1}  # settings that evaluation does not support


@dataclass(frozen=True)
class Objective:
    """A loss, and its description in the manifest and the signatures.

    Attributes:
        function: The Keras loss; takes `sample_weight` and returns the mean over the batch, `[]`.
        name: One of `manifest.LOSSES`.
        from_logits: Whether the loss takes the model's output as logits.
        delta: The error at which Huber's loss turns from quadratic to linear.
    """

    function: keras.losses.Loss
    name: str
    from_logits: bool
    delta: float = 1.0

    def target(self, output: tf.TensorShape) -> tf.TensorSpec:
        """Return the shape and dtype of `y` for a model output `[batch, ...]`."""
        if self.name == "sparse_categorical_crossentropy":
            return tf.TensorSpec(output[:-1], tf.int32, name="y")
        return tf.TensorSpec(output, tf.float32, name="y")


def objective_of(loss: Any, ending: Sequence[str]) -> Objective:
    """Return the objective of a loss name or a Keras loss object.

    Args:
        loss: One of `manifest.LOSSES` (or `mse`, `mae`), or a Keras loss object of these.
        ending: The types of the ops that end the model, the last one first. For a loss by name, they decide whether the
            output is logits: not behind a softmax, or behind a sigmoid for binary cross-entropy.
    """
    if isinstance(loss, str):
        name = _SHORT.get(loss, loss)
        if name not in _LOSSES:
            raise ExportError(f"loss: expected {', '.join(_LOSSES)} or a Keras loss object of these, found {loss!r}")
        from_logits = name in _PROBABILITIES and ending[:1] != [_PROBABILITIES[name]]
        doubtful = next((op for op in ending if op in _PROBABILITIES.values()), None)
        if from_logits and doubtful:
            raise ExportError(
                f"loss {name}: the model ends in a {doubtful.lower()} that is not its last op or belongs to another "
                "loss, so its output may be logits or not; pass a Keras loss object with from_logits=True or False"
            )
        settings = {"from_logits": from_logits} if name in _PROBABILITIES else {}
        return Objective(_LOSSES[name](**settings), name, from_logits)
    name = next((name for name, kind in _LOSSES.items() if type(loss) is kind), "")
    if not name:
        raise ExportError(f"loss: expected a Keras loss object of {', '.join(_LOSSES)}, found {type(loss).__name__}")
    settings = {**loss.get_config(), **loss._fn_kwargs}  # Huber's config lacks its delta
    for setting, expected in _FIXED.items():
        found = settings.get(setting, expected)
        if found != expected:
            raise ExportError(f"loss {name}: expected {setting}={expected!r} (the default), found {found!r}")
    return Objective(loss, name, bool(settings.get("from_logits", False)), float(settings.get("delta", 1.0)))


def compiled_objective(model: keras.Model) -> Objective | None:
    """Return the objective of a compiled Keras model; None if evaluation lacks its loss.

    A loss by name takes probabilities, as in Keras.
    """
    given = model.loss
    name = given if isinstance(given, str) else getattr(given, "__name__", "")
    name = _SHORT.get(name, name)
    try:
        return objective_of(_LOSSES[name]() if name in _LOSSES else given, ending=())
    except ExportError:
        return None


def class_weight_of(
    given: Mapping[int, float] | None, objective: Objective, output: tuple[int | None, ...]
) -> NDArray[np.float32] | None:
    """Return the factor of each class, `[classes]`; None if none is given.

    Args:
        given: The factors by class; missing classes get 1.
        objective: The loss.
        output: The shape of the model's output, `[batch, ..., classes]`, or `[batch, ..., 1]` for a binary loss.
    """
    if given is None:
        return None
    classes = 2 if output[-1] == 1 else int(output[-1] or 0)
    if objective.name in REGRESSIONS or (objective.name == "binary_crossentropy" and output[-1] != 1):
        raise ExportError(
            f"class_weight: the loss {objective.name} of {output[-1]} outputs has no classes; leave it out"
        )
    weights = np.ones(classes, np.float32)
    for key, value in given.items():
        if not (isinstance(key, int | np.integer) and 0 <= key < classes and math.isfinite(value) and value >= 0):
            raise ExportError(
                f"class_weight: expected classes 0..{classes - 1} and factors of at least 0, found {key!r}: {value!r}"
            )
        weights[key] = value
    return weights


def optimizer_of(optimizer: Any) -> keras.optimizers.Optimizer:
    """Return a new Keras optimizer from a name, a specification or an optimizer object."""
    try:
        if isinstance(optimizer, dict):
            settings = dict(optimizer)
            new = keras.optimizers.get({"class_name": settings.pop("name"), "config": settings})
        elif isinstance(optimizer, str):
            new = keras.optimizers.get(optimizer)
        else:
            new = type(optimizer).from_config(optimizer.get_config())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        line = str(error).strip().partition("\n")[0]
        raise ExportError(f"optimizer {optimizer!r}: not a Keras optimizer with these settings ({line})") from error
    if not isinstance(new.learning_rate, keras.Variable):
        raise ExportError(
            f"optimizer {new.name}: a learning-rate schedule cannot be exported; "
            "give a number, and pass each step's rate to `train`"
        )
    return new


def settings_of(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """Return an optimizer's name and settings for JSON, `learning_rate` among them; numbers as they were written."""
    config = {key: _plain(value) for key, value in optimizer.get_config().items()}
    return config | {"name": type(optimizer).__name__}


def _plain(value: Any) -> Any:
    return float(str(np.float32(value))) if isinstance(value, float | np.floating) else value
