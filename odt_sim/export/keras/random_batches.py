"""Traced functions on random batches."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

TRIALS = 3
ROWS = 5  # of a batch if their number is open


def drawn(
    spec: tf.TensorSpec, random: np.random.Generator, rows: int = ROWS, *, words: int = 2, positive: bool = False
) -> NDArray[Any]:
    """Return random values.

    Args:
        spec: The shape and dtype.
        random: The source of random numbers.
        rows: The size of open axes.
        words: The integers from 0 to draw from; every vocabulary contains the first two.
        positive: Whether floats are between 0 and 1 and integers at least 1.
    """
    shape, dtype = [rows if size is None else size for size in spec.shape], spec.dtype.as_numpy_dtype
    if not spec.dtype.is_floating:
        return random.integers(int(positive), 2 if spec.dtype.is_bool else words, shape).astype(dtype)
    return (random.uniform(0.05, 0.95, shape) if positive else random.normal(size=shape)).astype(dtype)


def same_mean(each: Any, whole: Any) -> bool:
    """Return whether two functions of any number of rows have the same mean, on random batches."""
    random = np.random.default_rng(0)
    specs, states = each.structured_input_signature, [*_states(each), *_states(whole)]
    try:
        for _ in range(TRIALS):
            positional, named = tf.nest.map_structure(
                lambda spec: tf.constant(drawn(tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), random)), specs
            )
            one, other = (np.mean(tf.nest.flatten(losses(*positional, **named))[0]) for losses in (each, whole))
            if not np.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True):
                return False
    except tf.errors.OpError:  # random inputs are outside the valid range
        return True
    finally:
        for handle, value in states:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return True


def _states(function: Any) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Return the handles and values of the variables that a call may change: weights, counters and random states."""
    handles = [outer for outer, _ in function.graph.captures if outer.dtype == tf.resource]
    kinds = [(handle, handle._handle_data.shape_and_type) for handle in handles if handle._handle_data]
    return [
        (handle, tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(kind[0].dtype)))
        for handle, kind in kinds
        if kind
    ]
