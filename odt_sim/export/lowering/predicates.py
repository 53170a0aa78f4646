"""Tests of numbers for NaN and infinity."""

import tensorflow as tf

from odt_sim.export.lowering.registry import computes


@computes("IsNan")
def is_nan(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = (X != X), since NaN differs from itself."""
    return tf.not_equal(x, x)


@computes("IsInf")
def is_inf(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = (X = X and X - X != 0), because XNNPACK's absolute value of infinity is not infinite."""
    return tf.logical_and(tf.equal(x, x), tf.not_equal(x - x, 0.0))


@computes("CheckNumerics")
def check_numerics(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = X, because a file cannot stop at NaN or infinity."""
    return tf.identity(x)
