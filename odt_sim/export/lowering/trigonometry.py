"""Trigonometric and hyperbolic functions and their inverses, by TFLite's SIN, COS, ATAN2, EXP and LOG."""

import tensorflow as tf

from odt_sim.export.lowering.registry import computes


def log1p(x: tf.Tensor) -> tf.Tensor:
    """Return log(1 + x), also precise near 0: log(u) x / (u - 1) with the rounded u = 1 + x.

    D. Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991, theorem 4.
    """
    u = 1.0 + x
    rounded = tf.equal(u, 1.0)
    quotient = tf.math.log(u) * (x / tf.where(rounded, 1.0, u - 1.0))
    return tf.where(rounded, x, tf.where(tf.equal(tf.abs(u), float("inf")), u, quotient))


@computes("Atan2")
def atan2(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Compute Z = the angle of the point (X, Y); TFLite's kernel does not broadcast."""
    if y.shape != x.shape:
        y, x = y + tf.zeros_like(x), x + tf.zeros_like(y)
    return tf.atan2(y, x)


HALF_PI = (201 / 128, 2029 / 2**22, 1.5707963267948966 - 201 / 128 - 2029 / 2**22)
"""Pi / 2 as a sum of numbers of 8, 11 and 24 bits, whose products with small integers are exact in float32."""


@computes("Tan")
def tan(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = sin R / cos R for R = X - k pi / 2, with k = round(2 X / pi), or -cos R / sin R if k is odd.

    Without the reduction, the errors of sin X and cos X are large relative to their values near 0.
    W. Cody and W. Waite, "Software manual for the elementary functions", 1980.
    """
    k = tf.round(x * (1.0 / 1.5707963267948966))
    rest = x
    for part in HALF_PI:
        rest -= k * part
    odd = tf.not_equal(tf.round(0.5 * k), 0.5 * k)
    sine, cosine = tf.sin(rest), tf.cos(rest)
    return tf.where(odd, -cosine, sine) / tf.where(odd, sine, cosine)


@computes("Atan")
def atan(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = atan2(X, 1)."""
    return tf.atan2(x, tf.ones_like(x))


@computes("Asin")
def asin(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = atan2(X, sqrt(1 - X^2))."""
    return tf.atan2(x, tf.sqrt((1.0 - x) * (1.0 + x)))


@computes("Acos")
def acos(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = atan2(sqrt(1 - X^2), X)."""
    return tf.atan2(tf.sqrt((1.0 - x) * (1.0 + x)), x)


@computes("Cosh")
def cosh(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = (e^X + e^-X) / 2."""
    return 0.5 * tf.exp(x) + 0.5 * tf.exp(-x)


@computes("Sinh")
def sinh(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = (e^X - e^-X) / 2; near 0 by its Taylor series, which does not cancel."""
    square = tf.square(tf.clip_by_value(x, -1.0, 1.0))
    series = x * (1.0 + square / 6.0 * (1.0 + square / 20.0 * (1.0 + square / 42.0 * (1.0 + square / 72.0))))
    return tf.where(tf.abs(x) < 1.0, series, 0.5 * tf.exp(x) - 0.5 * tf.exp(-x))


@computes("Asinh")
def asinh(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = sign(X) log(|X| + sqrt(X^2 + 1)); for large numbers, sign(X) log(2 |X|)."""
    size = tf.abs(x)
    small = tf.minimum(size, 1e4)
    near = log1p(small + tf.square(small) / (1.0 + tf.sqrt(tf.square(small) + 1.0)))
    return tf.sign(x) * tf.where(size < 1e4, near, tf.math.log(tf.maximum(size, 1.0)) + 0.6931471805599453)


@computes("Acosh")
def acosh(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = log(X + sqrt(X^2 - 1)); for large numbers, log(2 X)."""
    more = tf.minimum(x, 1e4) - 1.0
    return tf.where(x < 1e4, log1p(more + tf.sqrt(more * (more + 2.0))), tf.math.log(x) + 0.6931471805599453)


@computes("Atanh")
def atanh(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = sign(X) log(1 + 2 |X| / (1 - |X|)) / 2."""
    size = tf.abs(x)
    return 0.5 * tf.sign(x) * log1p(2.0 * size / (1.0 - size))
