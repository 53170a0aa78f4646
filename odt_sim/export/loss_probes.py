"""The targets and the values of a loss, found by calls on a small batch."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.model.manifest import CTC

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
