"""Elementwise arithmetic that TFLite has no op of its own for, and gradients of such."""

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers
from odt_sim.export.lowering.windows import sum_of


@lowers("AddN")
def add_n(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = the sum of the inputs."""
    return [sum_of(inputs)]


@lowers("Reciprocal", "Inv")
def reciprocal(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = 1 / X."""
    return [1.0 / inputs[0]]


@lowers("RsqrtGrad")
def rsqrt_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = -dY Y^3 / 2, of Y = 1 / sqrt(X); 0 where dY is, also where Y is infinite."""
    y, gradient = inputs
    return [_zero_where_zero(gradient, gradient * (-0.5 * y * y * y))]


@lowers("SqrtGrad")
def sqrt_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = dY / (2 Y), of Y = sqrt(X); 0 where dY is, also where Y is 0."""
    y, gradient = inputs
    return [_zero_where_zero(gradient, 0.5 * gradient / y)]


def _zero_where_zero(gradient: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.equal(gradient, 0.0), tf.zeros_like(value), value)


@lowers("ReciprocalGrad", "InvGrad")
def reciprocal_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = -dY Y^2, of Y = 1 / X."""
    y, gradient = inputs
    return [-gradient * y * y]


@lowers("FloorDiv")
def floor_div(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = floor(A / B); of int64, for which there is no kernel, as int32: step counts are smaller."""
    a, b = inputs
    if a.dtype != tf.int64:
        return [a // b]
    return [tf.cast(tf.cast(a, tf.int32) // tf.cast(b, tf.int32), tf.int64)]


@lowers("Expm1")
def expm1(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = e^X - 1."""
    return [tf.exp(inputs[0]) - 1.0]


@lowers("Log1p")
def log1p(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = log(1 + X)."""
    return [tf.math.log(1.0 + inputs[0])]


@lowers("BitwiseAnd")
def bitwise_and(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = the sign bit of X, as whoever asks for the sign of a zero does."""
    x, mask = inputs
    sign = x.dtype.min
    if not (known(mask) == sign).all():
        raise Refusal("lowers the sign bit only; use arithmetic in place of bits")
    return [tf.where(x < 0, tf.constant(sign, x.dtype), tf.zeros_like(x))]


@lowers("L2Loss")
def l2_loss(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = sum(X^2) / 2."""
    return [0.5 * tf.reduce_sum(tf.square(inputs[0]))]


@lowers("IsFinite")
def is_finite(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = (X - X = 0), which is wrong for infinities and for what is no number."""
    return [tf.equal(inputs[0] - inputs[0], 0.0)]


@lowers("Xlogy")
def xlogy(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Z = X log Y, and 0 where X = 0."""
    x, y = inputs
    zero = tf.equal(x, 0.0)
    return [tf.where(zero, 0.0, x * tf.math.log(tf.where(zero, 1.0, y)))]


@lowers("Xdivy")
def xdivy(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Z = X / Y, and 0 where X = 0."""
    x, y = inputs
    zero = tf.equal(x, 0.0)
    return [tf.where(zero, 0.0, x / tf.where(zero, 1.0, y))]
