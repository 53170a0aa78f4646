"""Activity regularizers over the real examples of a batch only: a partial batch is padded by rows of sample weight 0."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.parameters import all_layers

SUMS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
"""Regularizers that add up what they make of each number, and make 0 of 0."""


@contextmanager
def real_activity_only(model: keras.Model, sample_weight: tf.Tensor) -> Iterator[None]:
    """Has the model's activity regularizers leave out the rows of weight 0 while a step is traced.

    Args:
        model: The model; its layers are afterwards as they were.
        sample_weight: `[batch]`.

    Raises:
        ExportError: A regularizer is none of Keras' sums.
    """
    layers = [layer for layer in all_layers(model) if getattr(layer, "activity_regularizer", None) is not None]
    before = [layer.activity_regularizer for layer in layers]
    for layer, own in zip(layers, before, strict=True):
        if type(own) not in SUMS:
            raise ExportError(
                f"layer {layer.name!r}: expected L1, L2 or L1L2 as its activity regularizer, found {type(own).__name__}; "
                "use one of these"
            )
    try:
        for layer, own in zip(layers, before, strict=True):
            layer.activity_regularizer = _of_real_rows(own, sample_weight)
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            layer.activity_regularizer = own


def _of_real_rows(own: keras.regularizers.Regularizer, sample_weight: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns batch / sum(r) own(r X), for r_i = 1 for real rows and 0 for others; Keras divides it by the batch."""

    def regularizer(x: tf.Tensor) -> tf.Tensor:
        real = tf.cast(tf.not_equal(sample_weight, 0.0), x.dtype)
        rows = tf.reshape(real, [-1] + [1] * (len(x.shape) - 1))
        return own(x * rows) / tf.maximum(tf.reduce_mean(real), 1e-9)

    return regularizer
