"""Keep padding rows out of batch statistics and activity regularizers.

Rows with sample weight 0 pad a partial batch to the exported size.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.folded_normalization import convolution_of, folds, normalized
from odt_sim.export.lowering.constants import shared
from odt_sim.export.parameters import all_layers


@contextmanager
def real_rows_only(model: keras.Model, sample_weight: tf.Tensor) -> Iterator[None]:
    """Make BatchNormalization ignore rows with weight 0 while a training step is traced."""
    layers = [layer for layer in all_layers(model) if isinstance(layer, keras.layers.BatchNormalization)]
    problems: list[str] = []  # raised later, because Keras wraps errors inside a layer in pages of text
    foreign = [layer for layer in all_layers(model) if hasattr(layer, "sample_weight")]
    for layer in layers:
        layer._moments = _moments_of(layer, sample_weight, problems)  # shadows the class's method
        layer.call = _call_of(layer, sample_weight)
    for layer in foreign:
        layer.sample_weight = sample_weight
    try:
        yield
    finally:
        for layer in foreign:
            layer.sample_weight = None
        for layer in layers:
            del layer._moments, layer.call
    if problems:
        raise ExportError(problems[0])


def _moments_of(layer: keras.layers.BatchNormalization, sample_weight: tf.Tensor, problems: list[str]) -> Any:
    own = layer._moments

    def moments(inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        if inputs.shape[0] != sample_weight.shape[0] or layer.axis == 0:
            where = f"layer {layer.name!r}: BatchNormalization"
            problems.append(f"{where} expects the batch as the first axis; use LayerNormalization")
        elif mask is None:
            return real_moments(inputs, list(layer._reduction_axes), sample_weight)
        else:
            real = tf.reshape(tf.not_equal(sample_weight, 0.0), [-1] + [1] * (len(mask.shape) - 1))
            mask = tf.logical_and(tf.cast(mask, tf.bool), real)
        mean, variance = own(inputs, mask)
        return mean, variance

    return moments


def _call_of(layer: keras.layers.BatchNormalization, sample_weight: tf.Tensor) -> Any:
    own = layer.call

    def call(inputs: tf.Tensor, training: Any = None, mask: tf.Tensor | None = None) -> tf.Tensor:
        convolution = convolution_of(inputs) if training and mask is None and folds(layer) else None
        if convolution is None or inputs.shape[0] != sample_weight.shape[0]:
            return own(inputs, training=training, mask=mask)
        output, mean, variance = normalized(layer, convolution, _share_of(sample_weight, tf.float32))
        for moving, new in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
            moving.assign(moving * layer.momentum + new * (1.0 - layer.momentum))
        return output

    return call


def _share_of(sample_weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return the share of each row in a mean over the rows with nonzero weight, computed once per graph."""

    def share() -> tf.Tensor:
        real = tf.cast(tf.not_equal(sample_weight, 0.0), dtype)
        return real / tf.maximum(tf.reduce_sum(real), 1.0)

    return shared(("share", sample_weight.ref(), dtype), share)


def real_moments(x: tf.Tensor, axes: list[int], sample_weight: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean and variance over the rows with nonzero weight: sum_i r_i mean(X_i) / sum_i r_i, r_i in {0, 1}.

    The mean within each row comes first: a mask of the size of X would dominate the cost. The hand-written gradient,
    dX_i = r_i / (sum_j r_j n) (dmean + 2 dvariance (X_i - mean)) for n elements per row and mean, halves the passes
    over X compared with a GradientTape.

    Args:
        x: `[batch, ...]`.
        axes: The axes to reduce, including 0.
        sample_weight: `[batch]`.

    Returns:
        Two tensors with the shape of the remaining axes.
    """
    share = _share_of(sample_weight, x.dtype)
    within = [axis for axis in axes if axis != 0]
    shape = [1 if axis in axes else x.shape[axis] for axis in range(len(x.shape))]

    def mean_of(values: tf.Tensor) -> tf.Tensor:
        rows = tf.reduce_mean(values, within) if within else values
        return tf.reduce_sum(rows * tf.reshape(share, [-1] + [1] * (len(rows.shape) - 1)), 0)

    def moments(x: tf.Tensor) -> Any:
        mean = mean_of(x)

        def gradient(mean_gradient: tf.Tensor, variance_gradient: tf.Tensor) -> tf.Tensor:
            count = prod(x.shape[axis] for axis in within)
            slope = variance_gradient * (2.0 / count)
            constant = mean_gradient * (1.0 / count) - slope * mean
            each = tf.reshape(share, [-1] + [1] * (len(shape) - 1))
            return x * (each * tf.reshape(slope, shape)) + each * tf.reshape(constant, shape)

        return (mean, mean_of(tf.math.squared_difference(x, tf.reshape(mean, shape)))), gradient

    mean, variance = tf.custom_gradient(moments)(x)
    return mean, variance


SUMS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
"""Regularizers that sum over elements and map 0 to 0."""


@contextmanager
def real_activity_only(model: keras.Model, sample_weight: tf.Tensor) -> Iterator[None]:
    """Make activity regularizers ignore rows with weight 0 while a training step is traced.

    If the number of rows is open, no rows are padded, and any regularizer is correct unchanged.
    """
    layers = [layer for layer in all_layers(model) if getattr(layer, "activity_regularizer", None) is not None]
    before = [layer.activity_regularizer for layer in layers]
    for layer, own in zip(layers, before, strict=True):
        if type(own) not in SUMS and sample_weight.shape[0] is not None:
            raise ExportError(
                f"layer {layer.name!r}: expected L1, L2 or L1L2 as its activity regularizer, found {type(own).__name__}; "
                "use one of these, or export with batch_size=None"
            )
    try:
        for layer, own in zip(layers, before, strict=True):
            layer.activity_regularizer = _of_real_rows(own, sample_weight) if type(own) in SUMS else own
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            layer.activity_regularizer = own


def _of_real_rows(own: keras.regularizers.Regularizer, sample_weight: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return batch / sum(r) own(r X) with r_i = 1 for real rows, else 0; Keras divides the result by the batch size."""

    def regularizer(x: tf.Tensor) -> tf.Tensor:
        real = tf.cast(tf.not_equal(sample_weight, 0.0), x.dtype)
        rows = tf.reshape(real, [-1] + [1] * (len(x.shape) - 1))
        return own(x * rows) / tf.maximum(tf.reduce_mean(real), 1e-9)

    return regularizer
