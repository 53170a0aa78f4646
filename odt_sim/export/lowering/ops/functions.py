"""Trigonometric, special and activation functions without a TFLite op, and their gradients; cross-entropy."""

from collections.abc import Sequence
from math import log, pi, sqrt

import tensorflow as tf

from odt_sim.export.lowering.layout.late import recomputed, zero_after
from odt_sim.export.lowering.ops.pooling import positive
from odt_sim.export.lowering.registry import Memo, Value, computes, computes_by, lowers


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


@lowers("Relu6Grad")
def relu6_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY if 0 < Y < 6, that is Y (6 - Y) > 0, else 0."""
    gradient, y = inputs
    y = y if op.inputs[1].op.type == "Relu6" else tf.nn.relu6(y)
    y = recomputed(y, gradient, memo)
    six = zero_after(gradient) + 6.0
    return [gradient * positive(y * (six - y))]


@lowers("LeakyReluGrad")
def leaky_relu_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY if X > 0, else alpha dY."""
    gradient, x = inputs
    alpha = op.get_attr("alpha")
    return [gradient * (alpha + (1.0 - alpha) * positive(tf.nn.relu(x)))]


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772  # Klambauer et al., arXiv:1706.02515

computes_by(
    {
        "Atan": lambda x: tf.atan2(x, tf.ones_like(x)),
        "Asin": lambda x: tf.atan2(x, tf.sqrt((1.0 - x) * (1.0 + x))),
        "Acos": lambda x: tf.atan2(tf.sqrt((1.0 - x) * (1.0 + x)), x),
        "Cosh": lambda x: 0.5 * tf.exp(x) + 0.5 * tf.exp(-x),
        "Atanh": lambda x: 0.5 * tf.sign(x) * log1p(2.0 * tf.abs(x) / (1.0 - tf.abs(x))),
        "EluGrad": lambda gradient, y: gradient * (1.0 + tf.minimum(y, 0.0)),
        "TanhGrad": lambda y, gradient: gradient * (1.0 - y * y),
        "SigmoidGrad": lambda y, gradient: gradient * y * (1.0 - y),
        "Selu": lambda x: SELU_SCALE * (tf.nn.relu(x) + SELU_ALPHA * (tf.exp(tf.minimum(x, 0.0)) - 1.0)),
        "Softplus": lambda x: tf.nn.relu(x) + tf.math.log(1.0 + tf.exp(-tf.abs(x))),  # does not overflow
        "SoftplusGrad": lambda gradient, x: gradient * tf.sigmoid(x),
        "Softsign": lambda x: x / (1.0 + tf.abs(x)),
        "SoftsignGrad": lambda gradient, x: gradient / tf.square(1.0 + tf.abs(x)),
    }
)


@computes("SeluGrad")
def selu_grad(gradient: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Compute dX = dY scale if Y >= 0, else dY (Y + scale alpha)."""
    below = tf.minimum(y, 0.0)
    return gradient * (SELU_SCALE + positive(-below) * (below + SELU_SCALE * (SELU_ALPHA - 1.0)))


ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)  # coefficients of t^5 to 1


@lowers("Erf", "Erfc")
def erf(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = erf X, or erfc X = 1 - erf X, to 2e-7.

    erfc |X| = e^(-X^2) p(t) with t = 1 / (1 + 0.3275911 |X|) and a polynomial p: Abramowitz and Stegun, Handbook of
    Mathematical Functions, 7.1.26.
    """
    (x,) = inputs
    t = 1.0 / (1.0 + 0.3275911 * tf.abs(x))
    tail = tf.math.polyval([tf.constant(c) for c in ERFC], t) * tf.exp(-tf.square(x))
    value = tf.sign(x) * (1.0 - tail)
    return [value if op.type == "Erf" else 1.0 - value]


def _cross_entropy(logits: tf.Tensor, target: tf.Tensor) -> list[tf.Tensor]:
    """Return the loss and its gradient by ops that XNNPACK runs; LOG_SOFTMAX takes three times as long as all of them."""
    shifted = logits - tf.reduce_max(logits, -1, keepdims=True)
    powers = tf.exp(shifted)
    total = tf.reduce_sum(powers, -1, keepdims=True)
    return [-tf.reduce_sum(target * (shifted - tf.math.log(total)), -1), powers / total - target]


def _one_hot(labels: tf.Tensor, classes: int | tf.Tensor) -> tf.Tensor:
    """Return 1 for the label's class, else 0, as max(1 - (label - class)^2, 0), which is six times as fast as ONE_HOT."""
    own = tf.expand_dims(tf.cast(uncast(labels), tf.float32), -1)
    return tf.nn.relu(1.0 - tf.math.squared_difference(own, tf.range(classes, dtype=tf.float32)))


def uncast(labels: tf.Tensor) -> tf.Tensor:
    """Return the integer labels from before Keras cast them to float32 and back and possibly reshaped them."""
    op = labels.op
    if op.type == "Reshape":
        return tf.reshape(uncast(op.inputs[0]), op.inputs[1])
    number = op.inputs[0] if op.type == "Cast" else labels
    whole = number.dtype == tf.float32 and number.op.type == "Cast" and number.op.inputs[0].dtype.is_integer
    return number.op.inputs[0] if whole else labels


@lowers("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute loss = -log softmax(Z)[y] and dZ = softmax(Z) - onehot(y)."""
    logits, labels = inputs
    classes = logits.shape[-1] or tf.shape(logits)[-1]  # open if each example of a batch is a class
    return _cross_entropy(logits, _one_hot(labels, classes))


@lowers("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute loss = -sum(Y log softmax(Z)) and dZ = softmax(Z) - Y."""
    logits, target = inputs
    return _cross_entropy(logits, target)
