"""The loss of an output from the caller's loss: a name, a Keras loss, or a function."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.ctc import ctc
from odt_sim.export.keras.interface import identifier
from odt_sim.export.keras.objective import Objective, mixes_rows, settings_of_loss, targets_and_rank
from odt_sim.export.torch.module import is_module
from odt_sim.model.contract.manifest import CTC, NO_LOSS

_CLASSES: list[Any] = [kind for kind in vars(keras.losses).values() if inspect.isclass(kind)]
KINDS: Mapping[str, Any] = {kind().fn.__name__: kind for kind in _CLASSES if kind is not keras.losses.Loss}
"""Keras' loss classes by the name of their function."""

PROBABILITIES = {  # the last op of a model that outputs probabilities
    "sparse_categorical_crossentropy": "Softmax",
    "categorical_crossentropy": "Softmax",
    "categorical_focal_crossentropy": "Softmax",
    "binary_crossentropy": "Sigmoid",
    "binary_focal_crossentropy": "Sigmoid",
}
CLASSIFIERS = (*PROBABILITIES, "categorical_hinge", "categorical_generalized_cross_entropy", "kl_divergence")
"""Losses whose targets are classes, as numbers or one-hot; binary losses need a single output."""

REFUSED = {
    "circle": "it masks the pairs of a whole batch; use your own function, such as a triplet loss, with batch_size=None",
}
"""Losses that cannot be exported, with the reason and advice."""

REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum")


def objective_of(
    loss: Any,
    ending: Sequence[str] | None,
    output: tf.TensorShape,
    *,
    name: str = "y",
    example: tf.TensorSpec | None = None,
) -> Objective:
    """Return the objective of an output.

    Args:
        loss: The name of a Keras loss, `{"name": ..., **settings}`, a Keras loss object, or a function of the targets and
            the output that returns a value per example.
        ending: The types of the last ops before the output, the last one first. For a loss by name, they decide whether the
            output is logits: it is not after a softmax, or, for a binary loss, a sigmoid. None keeps Keras' default.
        output: The output's shape, `[batch, ...]`.
        name: The name of the targets in signatures.
        example: The shape and dtype of the targets, if known.
    """
    if loss is None:
        raise ExportError("loss: expected one for each output, or a model compiled with it, found None; pass loss=...")
    function = _function(loss, ending)
    kind = next((key for key, kind in KINDS.items() if type(function) is kind), None)
    if function.reduction not in REDUCTIONS:
        raise ExportError(
            f"loss {kind or function.name}: expected one of {', '.join(REDUCTIONS)} as reduction, found "
            f"{function.reduction!r}; leave it out"
        )
    if kind in REFUSED:
        raise ExportError(f"loss {kind}: cannot be exported, because {REFUSED[kind]}")
    if kind == CTC:
        if len(output) != 3 or output[1] is None:
            raise ExportError(
                f"loss ctc: expected an output [frames, classes] of a fixed number of frames, found {[*output[1:]]}; return "
                "logits for each frame"
            )
        if example is not None and example.shape.rank != 2:
            raise ExportError(
                f"loss ctc: expected targets [labels] of an example, found {[*example.shape[1:]]}; give class "
                "numbers from 1, followed by zeros"
            )
        function = _wrapped(ctc, function.reduction)
    settings = settings_of_loss(function)
    if PROBABILITIES.get(kind or "") == "Softmax" and output[settings.get("axis", -1)] == 1:
        raise ExportError(
            f"loss {kind}: expected at least two classes per example, found {[*output[1:]]}, for which it is always "
            "0; use binary_crossentropy, or end the model with one value per class, such as Dense(2)"
        )
    target, rank = targets_and_rank(function, kind, output, example)
    if output[0] is not None and kind is None and mixes_rows(function, target, output):
        other = f", or pass a batch as example=(x, y) if its y has another shape than {[*target.shape[1:]]}"
        raise ExportError(
            f"loss {kind or function.name}: an example's value depends on the other examples of its batch, so rows "
            "that pad a partial batch would count; export with batch_size=None, which needs no padding"
            + (other if example is None else "")
        )
    return Objective(
        function,
        kind,
        tf.TensorSpec([output[0], *target.shape[1:]], target.dtype, name=name),
        rank,
        bool(settings.get("from_logits", kind == CTC)),
        float(settings.get("delta", 1.0)),
    )


def unknown_objective(
    example: tf.TensorSpec | None, output: tf.TensorShape, name: str, *, alone: bool, evaluated: bool
) -> Objective:
    """Return the objective of an output whose loss the model itself computes, with the targets of an example.

    Args:
        example: The shape and dtype of the targets, if known.
        output: The output's shape, `[batch, ...]`.
        name: The name of the targets in signatures.
        alone: Whether the example is x alone, as for `fit(x)`; the targets are then unused numbers, such as labels.
        evaluated: Whether the loss of an example can be computed outside training steps.
    """
    if example is None and not alone:
        raise ExportError(
            "loss: the model computes its own, so the shape of y is unknown; pass a batch as example=(x, y), or as "
            "example=x if fit takes x alone"
        )
    shape, dtype = ([], tf.int32) if example is None else (example.shape[1:], example.dtype)
    target = tf.TensorSpec([output[0], *shape], dtype, name=name)
    return Objective(None, None if evaluated else NO_LOSS, target, rank=1, without_targets=example is None)


def _function(loss: Any, ending: Sequence[str] | None) -> Any:
    """Return a loss as a `keras.losses.Loss`."""
    settings: dict[str, Any] = {}
    if isinstance(loss, Mapping):
        settings = dict(loss)
        loss = settings.pop("name", None)
    if isinstance(loss, str) and "." in loss:
        loss = _at(loss, settings)
    if isinstance(loss, str):
        return _named(loss, settings, ending)
    if isinstance(loss, keras.losses.Loss):
        return loss
    own = next((kind for kind in KINDS.values() if kind().fn is loss), None)
    if own:
        return own()
    if is_module(loss):
        kind = type(loss).__name__
        raise ExportError(
            f"loss: expected a name, a Keras loss or a function (y_true, y_pred), found PyTorch's {kind}; a module "
            f"trains with losses of Keras, such as {CTC if kind == 'CTCLoss' else 'sparse_categorical_crossentropy'}"
        )
    if not callable(loss) or inspect.isclass(loss):
        raise ExportError(
            f"loss: expected a name, a Keras loss or a function (y_true, y_pred), found {loss!r}; see keras.losses"
        )
    return _wrapped(loss)


def _at(path: str, settings: Mapping[str, Any]) -> Any:
    """Return the function at a path such as `my_package.my_loss`, or an object if the path names a class."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
        if inspect.isclass(found):
            return found(**settings)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ExportError(
            f"loss {path}: cannot be created ({error}); give the path of a function (y_true, y_pred)"
        ) from error
    return partial(found, **settings) if settings else found


def _wrapped(function: Any, reduction: str = "sum_over_batch_size") -> Any:
    """Return a function as a Keras loss."""
    from keras.src.losses.losses import LossFunctionWrapper  # has no public name

    name = getattr(getattr(function, "func", function), "__name__", type(function).__name__)
    return LossFunctionWrapper(function, reduction=reduction, name=identifier(name).strip("_") or None)


def _named(given: str, settings: dict[str, Any], ending: Sequence[str] | None) -> Any:
    try:
        known = keras.losses.get(given)
    except ValueError as error:
        raise ExportError(
            f"loss: expected {', '.join(KINDS)}, a Keras loss object or a function, found {given!r}"
        ) from error
    name = known.__name__ if inspect.isfunction(known) else known.fn.__name__
    if ending is not None and name in PROBABILITIES and "from_logits" not in settings:
        settings = {**settings, "from_logits": _from_logits(name, ending)}
    try:
        return KINDS[name](**settings)
    except TypeError as error:
        raise ExportError(
            f"loss {name}: {str(error).rpartition('() ')[2]}; see keras.losses.{KINDS[name].__name__}"
        ) from error


def _from_logits(name: str, ending: Sequence[str]) -> bool:
    from_logits = ending[:1] != [PROBABILITIES[name]]
    doubtful = next((op for op in ending if op in PROBABILITIES.values()), None)
    if from_logits and doubtful:
        raise ExportError(
            f"loss {name}: the model ends in a {doubtful.lower()} that is not its last op or belongs to another "
            "loss, so it is unclear whether its output is logits; pass a Keras loss object with from_logits=True or False"
        )
    return from_logits
