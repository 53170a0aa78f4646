"""Divide the sparse gradient of an Embedding, as RMSprop, Adagrad, Adadelta, Adafactor and ScheduleFreeAdamW do.

Keras' division of `tf.IndexedSlices` adds the rows in which the divisor is 0 or NaN. These rows have no fixed shape, which
LiteRT needs. Optimizers add an epsilon to the divisor, so there are no such rows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import numpy as keras_numpy  # the only place to extend `keras.ops.divide`


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """Keep the indices of sparse gradients in divisions while a training step is traced."""
    own = keras_numpy.divide
    keras_numpy.divide = _division(own)
    try:
        yield
    finally:
        keras_numpy.divide = own


def _division(own: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def divide(x1: Any, x2: Any) -> Any:
        """Return the rows S_i / D[i] of S / D for sparse S and dense D."""
        if (
            not isinstance(x1, tf.IndexedSlices)
            or isinstance(x2, tf.IndexedSlices)
            or not len(getattr(x2, "shape", ()))
        ):
            return own(x1, x2)
        return tf.IndexedSlices(own(x1.values, _rows(x2, x1.indices)), x1.indices, x1.dense_shape)

    return divide


def _rows(x: Any, places: tf.Tensor) -> tf.Tensor:
    """Return rows of D; if D = sqrt(E) or E + e, compute them from only these rows of E."""
    op = getattr(x, "op", None)
    if op is not None and op.type == "Sqrt":
        return tf.sqrt(_rows(op.inputs[0], places))
    if op is not None and op.type == "AddV2" and op.inputs[1].shape.rank == 0:
        return _rows(op.inputs[0], places) + op.inputs[1]
    return tf.gather(x, places)
