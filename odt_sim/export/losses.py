"""The loss of one output, given by name, as a Keras loss, or as the author's function."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.ctc import ctc
from odt_sim.export.interface import identifier
from odt_sim.export.pytorch.module import is_module
from odt_sim.model.manifest import CTC, LOSSES, task_of

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

CLASSES = ("categorical_focal_crossentropy", "binary_focal_crossentropy", "categorical_generalized_cross_entropy")
NUMBERS = ("mean_absolute_percentage_error", "mean_squared_logarithmic_error", "log_cosh", "poisson")
"""Losses beyond `manifest.LOSSES` that imply a task."""

OVERLAPS = ("dice", "tversky")
"""Losses that are one number per batch unless they have an axis; rows of zeros do not change them."""

NUMBERED = ("sparse_categorical_crossentropy", "categorical_generalized_cross_entropy")
"""Losses whose targets are class numbers."""

REFUSED = {
    "circle": "it masks the pairs of a whole batch; use a function of your own, such as a triplet loss, with batch_size=None",
}
"""Losses that cannot be exported, with the reason and advice."""

REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum")
PROBE = 5  # the batch size used to probe the shapes of a loss


@dataclass(frozen=True)
class Objective:
    """The loss of one output, and its description in the manifest and the signatures.

    Attributes:
        function: The `keras.losses.Loss`; None if only the model's class computes the loss.
        name: The loss's Keras name, such as `hinge`; None for the author's function.
        target: The targets, `[batch, ...]`, under their name in signatures.
        rank: The rank of the loss's values before their mean, `[batch, ...]`; 0 for one number per batch.
        from_logits: Whether the loss takes the model's output as logits.
        delta: The error at which Huber's loss changes from quadratic to linear.
        weight: The factor of this loss in the sum over all outputs.
        masked: Whether the output carries a Keras mask, `[batch, positions]`.
        metrics: The names of additional metrics of the output.
    """

    function: Any
    name: str | None
    target: tf.TensorSpec
    rank: int
    from_logits: bool = False
    delta: float = 1.0
    weight: float = 1.0
    masked: bool = False
    metrics: tuple[str, ...] = ()

    @property
    def on_host(self) -> bool:
        """Whether evaluation has a formula for this loss; otherwise, the file gets the signature `loss`."""
        last_axis = _settings(self.function).get("axis", -1) == -1
        return self.name in LOSSES and last_axis and not self.leaves_out

    @property
    def ignore_class(self) -> int | None:
        """The label that the loss ignores, or None."""
        given = _settings(self.function).get("ignore_class")
        return None if given is None else int(given)

    @property
    def leaves_out(self) -> bool:
        """Whether the loss ignores positions, by a mask or by their label."""
        return self.masked or self.ignore_class is not None

    def task(self, output: tf.TensorShape) -> str:
        """Return the manifest's task of an output `[batch, ...]`."""
        if self.name in CLASSES:
            return "classification"
        return "regression" if self.name in NUMBERS else task_of(self.name)

    def loss(self, y: tf.Tensor, output: tf.Tensor, weight: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Return the loss of a batch, `[]`, as Keras reduces it over the real rows.

        Args:
            y: The targets.
            output: The model's output; if it has a Keras mask, only the unmasked values count.
            weight: The weight of each value, `[batch, ...]`; in a padded batch, 0 for padding and `batch / real rows` else.
            real: 1 for real rows and 0 for padding, `[batch]`.
        """
        if self.rank == 0 and self.name in OVERLAPS:
            y, output = (tf.cast(t, tf.float32) * _per_row(real, len(t.shape)) for t in (y, output))
        if self.leaves_out:
            values = self.function.call(tf.cast(y, tf.float32), output)
            mask = self._mask(values, getattr(output, "_keras_mask", None))
            return _reduced(values, mask, weight, real, self.function.reduction)
        loss = self.function(y, output, sample_weight=weight)
        return loss * tf.reduce_mean(real) if self.function.reduction == "sum" else loss

    def _mask(self, values: tf.Tensor, given: tf.Tensor | None) -> tf.Tensor | None:
        """Return 1 for each value that both the output's mask and the loss's mask keep; None if all values count."""
        if given is not None and given.shape.rank != values.shape.rank:
            raise ExportError(
                f"loss {self.name}: has values of {values.shape.rank} axes, the mask of the output {given.shape.rank}; "
                + (
                    "all frames count, and padded ones learn to be blanks, so end the mask, such as by * 1.0 behind the "
                    "layers that use it"
                    if self.name == CTC
                    else "choose a loss with a value per position, or end the mask by a layer such as GlobalAveragePooling1D"
                )
            )
        masks = [tf.cast(m, tf.float32) for m in (given, getattr(values, "_keras_mask", None)) if m is not None]
        return None if not masks else masks[0] * masks[-1]

    def losses(self, y: tf.Tensor, output: tf.Tensor, given: tf.Tensor | None = None) -> tf.Tensor:
        """Return each example's loss, `[batch]`; a loss of one number per batch is repeated for each example.

        Args:
            y: The targets.
            output: The model's output.
            given: The mask of the output, `[batch, positions]`, 1 for positions that count; None if all count.
        """
        function = self.function
        if self.rank == 0 and self.name in OVERLAPS:
            function = type(function)(**{**function._fn_kwargs, "axis": tuple(range(1, len(output.shape)))})
        values = function.call(tf.cast(y, tf.float32), output)
        if not values.shape.rank:
            return values + tf.zeros_like(tf.reshape(output, [tf.shape(output)[0], -1])[:, 0])
        valid, axes = self._mask(values, given), list(range(1, len(values.shape)))
        if valid is None or not axes:
            return tf.reduce_mean(values, axes) if axes else values
        return tf.math.divide_no_nan(tf.reduce_sum(values * valid, axes), tf.reduce_sum(valid, axes))


def _per_row(values: tf.Tensor, rank: int) -> tf.Tensor:
    return tf.reshape(values, [-1] + [1] * (rank - 1))


def _reduced(
    values: tf.Tensor, mask: tf.Tensor | None, weight: tf.Tensor, real: tf.Tensor, reduction: str
) -> tf.Tensor:
    """Reduce masked values as Keras does, without the unmasked positions of padding rows, which Keras would count."""
    mask = tf.ones_like(values) if mask is None else mask
    total = tf.reduce_sum(values * mask * weight)
    if reduction == "mean_with_sample_weight":
        return tf.math.divide_no_nan(total, tf.reduce_sum(mask * weight))
    share = tf.reduce_mean(real)
    if reduction == "sum":
        return total * share
    return tf.math.divide_no_nan(total * share, tf.reduce_sum(mask * _per_row(real, len(values.shape))))


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
        raise ExportError("loss: expected one for each output, or a model compiled with it, found None; give loss=...")
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
                f"loss ctc: expected targets [labels] of an example, found {[*example.shape[1:]]}; give class numbers from 1 "
                "with zeros behind them"
            )
        function = _wrapped(ctc, function.reduction)
    settings = _settings(function)
    if PROBABILITIES.get(kind or "") == "Softmax" and output[settings.get("axis", -1)] == 1:
        raise ExportError(
            f"loss {kind}: expected at least two classes for each example, found {[*output[1:]]}, for which it is always 0; "
            "use binary_crossentropy, or end in a layer with a value for each class, such as Dense(2)"
        )
    target, rank = _probed(function, kind, output, example)
    if output[0] is not None and kind is None and _mixes_rows(function, target, output):
        raise ExportError(
            f"loss {kind or function.name}: an example's value depends on the others of its batch, so the rows that pad a "
            "partial batch would count; export with batch_size=None, which needs no padding"
        )
    return Objective(
        function,
        kind,
        tf.TensorSpec([output[0], *target.shape[1:]], target.dtype, name=name),
        rank,
        bool(settings.get("from_logits", kind == CTC)),
        float(settings.get("delta", 1.0)),
    )


def unknown_objective(example: tf.TensorSpec | None, output: tf.TensorShape, name: str) -> Objective:
    """Return the objective of an output whose loss the model's class computes, with the targets of an example."""
    if example is None:
        raise ExportError("loss: the model computes its own, so the shape of y is open; give a batch by example=(x, y)")
    return Objective(None, None, tf.TensorSpec([output[0], *example.shape[1:]], example.dtype, name=name), rank=1)


def _settings(function: Any) -> dict[str, Any]:
    """Return the settings of a Keras loss; `get_config` lacks Huber's delta."""
    return dict(getattr(function, "_fn_kwargs", {}))


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
            f"loss: expected a name, a Keras loss or a function (y_true, y_pred), found PyTorch's {kind}; a module trains "
            f"with Keras' losses, such as {CTC if kind == 'CTCLoss' else 'sparse_categorical_crossentropy'}"
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
            f"loss {path}: cannot be made ({error}); give the path of a function (y_true, y_pred)"
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
            "loss, so its output may be logits or not; pass a Keras loss object with from_logits=True or False"
        )
    return from_logits


def _probed(
    function: Any, kind: str | None, output: tf.TensorShape, example: tf.TensorSpec | None
) -> tuple[tf.TensorSpec, int]:
    """Return the spec of the targets that a loss accepts, and the rank of its values."""
    problem = ""
    for target in _targets(function, kind, output, example):
        try:
            shape = _values_shape(function, target, output)
        except (ValueError, TypeError, IndexError, NotImplementedError, tf.errors.OpError) as error:
            problem = problem or str(error).strip().partition("\n")[0]
            continue
        if not shape.rank or shape[0] == PROBE:
            return target, shape.rank or 0
        problem = problem or f"it returns {list(shape)} for {PROBE} examples"
    raise ExportError(
        f"loss {kind or function.name}: expected one value for each example ({problem}); return values [batch, ...], or "
        "give the shape of the targets by example=(x, y), of a PyTorch module by example=((x,), y)"
    )


def _targets(
    function: Any, kind: str | None, output: tf.TensorShape, example: tf.TensorSpec | None
) -> Iterator[tf.TensorSpec]:
    """Yield specs of the targets that a loss may accept, the likeliest first, for `PROBE` rows."""
    shape = [PROBE, *output[1:]]
    if kind in NUMBERED:
        axis = _settings(function).get("axis", -1) % len(shape)
        yield tf.TensorSpec(shape[:axis] + shape[axis + 1 :], tf.int32)
    elif kind == CTC:  # at most one label per frame
        yield tf.TensorSpec([PROBE, *(shape[1:2] if example is None else example.shape[1:])], tf.int32)
    elif kind is None and example is not None:
        yield tf.TensorSpec([PROBE, *example.shape[1:]], example.dtype)
    else:
        yield tf.TensorSpec(shape, tf.float32)
        if kind is None:
            yield tf.TensorSpec(shape[:-1], tf.int32)


def _mixes_rows(function: Any, target: tf.TensorSpec, output: tf.TensorShape) -> bool:
    """Return whether the first example's loss changes with the others, on three random batches.

    A loss that rejects random targets is assumed not to mix rows.
    """
    random = np.random.default_rng(0)
    shape = [PROBE, *output[1:]]

    def batch() -> list[Any]:
        integers = random.integers(0, 2, target.shape)
        y = integers if target.dtype.is_integer else random.uniform(0.05, 0.95, target.shape)
        return [y.astype(np.float32), random.uniform(0.05, 0.95, shape).astype(np.float32)]

    def first(values: Sequence[Any]) -> Any:
        losses = np.asarray(function.call(*map(tf.constant, values)))
        return losses[0] if losses.ndim else losses

    for _ in range(3):
        one, other = batch(), batch()
        mixed = [np.concatenate([a[:1], b[1:]]) for a, b in zip(one, other, strict=True)]
        try:
            alike = np.allclose(first(one), first(mixed), rtol=1e-4, atol=1e-6, equal_nan=True)
        except (ValueError, tf.errors.OpError):
            return False
        if not alike:
            return True
    return False


def _values_shape(function: Any, target: tf.TensorSpec, output: tf.TensorShape) -> tf.TensorShape:
    def call(y: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
        return function.call(tf.cast(y, tf.float32), output)

    specs = [target, tf.TensorSpec([PROBE, *output[1:]], tf.float32)]
    return tf.function(call, autograph=False).get_concrete_function(*specs).structured_outputs.shape
