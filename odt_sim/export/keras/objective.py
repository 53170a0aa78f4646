"""The loss of one output, as training and evaluation compute it, with its targets and the rank of its values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.model.contract.manifest import CTC, LOSSES, task_of

NUMBERED = ("sparse_categorical_crossentropy", "categorical_generalized_cross_entropy")
"""Losses whose targets are class numbers."""

PROBE = 5  # the batch size used to probe the shapes of a loss


def settings_of_loss(function: Any) -> dict[str, Any]:
    """Return the settings of a Keras loss; `get_config` lacks Huber's delta."""
    return dict(getattr(function, "_fn_kwargs", {}))


def targets_and_rank(
    function: Any, kind: str | None, output: tf.TensorShape, example: tf.TensorSpec | None
) -> tuple[tf.TensorSpec, int]:
    """Return the spec of the targets that a loss accepts, and the rank of its values.

    Targets for which an example's loss depends on other examples come last: they may fit only by broadcasting.
    """
    problem, mixing = "", []
    for target in _targets(function, kind, output, example):
        try:
            shape = _values_shape(function, target, output)
        except (ValueError, TypeError, IndexError, NotImplementedError, tf.errors.OpError) as error:
            problem = problem or str(error).strip().partition("\n")[0]
            continue
        if not shape.rank or shape[0] == PROBE:
            if kind is None and example is None and mixes_rows(function, target, output):
                mixing.append((target, shape.rank or 0))
                continue
            return target, shape.rank or 0
        problem = problem or f"it returns {list(shape)} for {PROBE} examples"
    if mixing:
        return mixing[0]
    raise ExportError(
        f"loss {kind or function.name}: expected one value for each example ({problem}); return values [batch, ...], "
        "or give the shape of the targets with example=(x, y), for a PyTorch module example=((x,), y)"
    )


def _targets(
    function: Any, kind: str | None, output: tf.TensorShape, example: tf.TensorSpec | None
) -> Iterator[tf.TensorSpec]:
    """Yield specs of the targets that a loss may accept, the likeliest first, for `PROBE` rows."""
    shape = [PROBE, *output[1:]]
    if kind in NUMBERED:
        axis = settings_of_loss(function).get("axis", -1) % len(shape)
        yield tf.TensorSpec(shape[:axis] + shape[axis + 1 :], tf.int32)
    elif kind == CTC:  # at most one label per frame
        yield tf.TensorSpec([PROBE, *(shape[1:2] if example is None else example.shape[1:])], tf.int32)
    elif kind is None and example is not None:
        yield tf.TensorSpec([PROBE, *example.shape[1:]], example.dtype)
    else:
        yield tf.TensorSpec(shape, tf.float32)
        if kind is None:
            yield tf.TensorSpec(shape[:-1], tf.int32)


def mixes_rows(function: Any, target: tf.TensorSpec, output: tf.TensorShape) -> bool:
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


CLASSES = ("categorical_focal_crossentropy", "binary_focal_crossentropy", "categorical_generalized_cross_entropy")
NUMBERS = ("mean_absolute_percentage_error", "mean_squared_logarithmic_error", "log_cosh", "poisson")
"""Losses beyond `manifest.LOSSES` that imply a task."""

OVERLAPS = ("dice", "tversky")
"""Losses that are one number per batch unless they have an axis; rows of zeros do not change them."""


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
        without_targets: Whether the model takes no targets, as with `fit(x)`.
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
    without_targets: bool = False

    @property
    def on_host(self) -> bool:
        """Whether evaluation has a formula for this loss; otherwise, the file gets the signature `loss`."""
        last_axis = settings_of_loss(self.function).get("axis", -1) == -1
        return self.name in LOSSES and last_axis and not self.leaves_out

    @property
    def ignore_class(self) -> int | None:
        """The label that the loss ignores, or None."""
        given = settings_of_loss(self.function).get("ignore_class")
        return None if given is None else int(given)

    @property
    def leaves_out(self) -> bool:
        """Whether the loss ignores positions, by a mask or by their label."""
        return self.masked or self.ignore_class is not None

    @property
    def task(self) -> str:
        """The manifest's task of the output."""
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
                f"loss {self.name or self.function.name}: has values of {values.shape.rank} axes, but the mask of the "
                f"output has {given.shape.rank}; "
                + (
                    "all frames count, and padded ones learn to be blanks, so remove the mask, such as with * 1.0 "
                    "after the layers that use it"
                    if self.name == CTC
                    else "choose a loss with a value per position, or remove the mask, such as with * 1.0 on the output "
                    "or a layer such as GlobalAveragePooling1D"
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
