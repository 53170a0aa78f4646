"""The inverse error function, and the logarithm of the gamma function and its derivative."""

from collections.abc import Sequence
from math import log, pi, sqrt

import tensorflow as tf

from odt_sim.export.lowering.registry import computes
from odt_sim.export.lowering.trigonometry import log1p

# M. Giles, "Approximating the erfinv function", GPU Computing Gems 2 (2011), single precision; highest power first.
CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
           -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682)  # fmt: skip


def _polynomial(coefficients: Sequence[float], x: tf.Tensor) -> tf.Tensor:
    return tf.math.polyval([tf.constant(c) for c in coefficients], x)


@computes("Erfinv")
def erfinv(x: tf.Tensor) -> tf.Tensor:
    """Compute Y with erf Y = X: X p(w) with w = -log(1 - X^2), by one polynomial up to w = 5 and another above."""
    w = -log1p(-x * x)
    central, tail = tf.minimum(w, 5.0) - 2.5, tf.sqrt(tf.clip_by_value(w, 5.0, 20.0)) - 3.0
    value = x * tf.where(w < 5.0, _polynomial(CENTRAL, central), _polynomial(TAIL, tail))
    return tf.where(tf.equal(tf.abs(x), 1.0), x * float("inf"), value)


# C. Lanczos, "A precision approximation of the gamma function", 1964, with g = 7 and nine coefficients.
G = 7.0
BASE = 0.99999999999980993227684700473478
COEFFICIENTS = (676.520368121885098567009190444019, -1259.13921672240287047156078755283, 771.3234287776530788486528258894,
                -176.61502916214059906584551354, 12.507343278686904814458936853, -0.13857109526572011689554707,
                9.984369578019570859563e-6, 1.50563273514931155834e-7)  # fmt: skip


def _reflected(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return whether x < 1/2, where the reflection formula is used, and the z >= -1/2 at which to evaluate gamma(z + 1)."""
    reflect = x < 0.5
    return reflect, tf.where(reflect, -x, x - 1.0)


def _log_t(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return t = z + g + 1/2 and its logarithm."""
    return z + (G + 0.5), log(G + 0.5) + log1p(z / (G + 0.5))


@computes("Lgamma")
def lgamma(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = log |gamma(X)| by Lanczos' series, and log pi - log |sin(pi X)| - log gamma(1 - X) below 1/2."""
    reflect, z = _reflected(x)
    t, log_t = _log_t(z)
    series = BASE + tf.add_n([c / (z + (i + 1.0)) for i, c in enumerate(COEFFICIENTS)])
    value = (z + 0.5 - t / log_t) * log_t + log(sqrt(2.0 * pi)) + tf.math.log(series)
    part = tf.abs(x) - tf.floor(tf.abs(x))
    sine = tf.sin(pi * tf.minimum(part, 1.0 - part))
    return tf.where(reflect, log(pi) - tf.math.log(tf.where(reflect, sine, 1.0)) - value, value)


@computes("Digamma")
def digamma(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = the derivative of log gamma(X) by Lanczos' series; below 1/2, that at 1 - X minus pi cot(pi X)."""
    reflect, z = _reflected(x)
    t, log_t = _log_t(z)
    series = BASE + tf.add_n([c / (z + (i + 1.0)) for i, c in enumerate(COEFFICIENTS)])
    slope = -tf.add_n([c / tf.square(z + (i + 1.0)) for i, c in enumerate(COEFFICIENTS)])
    value = log_t + slope / series - G / t
    angle = pi * (x - tf.round(x))
    cotangent = tf.cos(angle) / tf.where(reflect, tf.sin(angle), 1.0)
    return tf.where(reflect, value - pi * cotangent, value)
