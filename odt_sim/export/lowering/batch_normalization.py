"""The fused batch normalization of Keras 2: per channel over batch, height and width."""

from math import prod

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers

AXES = [0, 1, 2]


@lowers("FusedBatchNormV3")
def fused_batch_norm(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = scale (X - mean) / sqrt(variance + epsilon) + offset.

    In training, mean and variance are computed from X, and the running statistics become r <- (1 - f) r + f m, where m is
    the mean or the unbiased variance of X.
    """
    _check_format(op)
    x, scale, offset, mean, variance = inputs
    running = [mean, variance]
    if op.get_attr("is_training"):
        mean = tf.reduce_mean(x, AXES)
        variance = tf.reduce_mean(tf.square(x - mean), AXES)
        count = _count(x)
        new = [mean, variance * (count / tf.maximum(count - 1.0, 1.0))]
        factor = op.get_attr("exponential_avg_factor")
        running = new if factor == 1.0 else [(1.0 - factor) * r + factor * m for r, m in zip(running, new, strict=True)]
    normal = (x - mean) * (scale * tf.math.rsqrt(variance + op.get_attr("epsilon")))
    return [normal + offset, *running, mean, variance, variance]


@lowers("FusedBatchNormGradV3")
def fused_batch_norm_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dscale = sum(dY N), doffset = sum(dY) and dX, for N = (X - mean) / sqrt(variance + epsilon).

    In training, dX = scale (dY - mean(dY) - N mean(dY N)) / sqrt(variance + epsilon); otherwise,
    dX = scale dY / sqrt(variance + epsilon).
    """
    _check_format(op)
    gradient, x, scale, mean, variance, _ = inputs
    root = tf.math.rsqrt(variance + op.get_attr("epsilon"))
    normal = (x - mean) * root
    products = gradient * normal
    dx = gradient
    if op.get_attr("is_training"):
        dx = gradient - tf.reduce_mean(gradient, AXES) - normal * tf.reduce_mean(products, AXES)
    return [dx * (scale * root), tf.reduce_sum(products, AXES), tf.reduce_sum(gradient, AXES), mean, variance]


def _check_format(op: tf.Operation) -> None:
    if op.get_attr("data_format") != b"NHWC":
        raise Refusal('supports only data_format="channels_last"; use that')


def _count(x: tf.Tensor) -> tf.Tensor:
    """Return the number of values per channel."""
    if x.shape.is_fully_defined():
        return tf.constant(float(prod(x.shape[:3])))
    return tf.reduce_sum(tf.ones_like(x[..., :1]))
