"""Elementwise arithmetic without a TFLite op, and its gradients."""

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.image_rows import elementwise
from odt_sim.export.lowering.integers import bitwise_and as common_bits
from odt_sim.export.lowering.registry import Memo, Value, computes, lowers


@computes("Reciprocal", "Inv")
def reciprocal(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = 1 / X."""
    return 1.0 / x


@lowers("Rsqrt")
def rsqrt(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = 1 / sqrt(X).

    On x86, XNNPACK's RSQRT of 0 is NaN instead of infinity, so UnitNormalization would turn a row of zeros into NaN.
    """
    return [elementwise(tf.math.rsqrt if _above_zero(op.inputs[0].op) else _inverse_root, *inputs)]


def _inverse_root(x: tf.Tensor) -> tf.Tensor:
    return 1.0 / tf.abs(tf.sqrt(x))


@lowers("Sqrt")
def sqrt(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the square root of X.

    The converter turns A / sqrt(X) into A times XNNPACK's RSQRT of X, which is NaN for X = 0, unless an op is in between.
    """
    y = elementwise(tf.sqrt, *inputs)
    return [elementwise(tf.abs, y) if _divides(op.outputs[0]) and not _above_zero(op.inputs[0].op) else y]


def _divides(x: tf.Tensor) -> bool:
    """Return whether a tensor is a divisor."""
    return any(
        (user.type == "RealDiv" and user.inputs[1].name == x.name)
        or (user.type == "Identity" and _divides(user.outputs[0]))
        for user in x.consumers()
    )


def _above_zero(op: tf.Operation) -> bool:
    """Return whether an op adds a positive constant, such as a variance's epsilon, or has one as its minimum."""
    constants = [tf.get_static_value(x) for x in op.inputs] if op.type in ("Add", "AddV2", "Maximum") else []
    return any(value is not None and np.all(value > 0) for value in constants)


@computes("RsqrtGrad")
def rsqrt_grad(y: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Compute dX = -dY Y^3 / 2 for Y = 1 / sqrt(X); 0 where dY is 0, even if Y is infinite."""
    return _zero_where_zero(gradient, gradient * (-0.5 * y * y * y))


@computes("SqrtGrad")
def sqrt_grad(y: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Compute dX = dY / (2 Y) for Y = sqrt(X); 0 where dY is 0, even if Y is 0."""
    return _zero_where_zero(gradient, 0.5 * gradient / y)


def _zero_where_zero(gradient: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.equal(gradient, 0.0), tf.zeros_like(value), value)


@computes("ReciprocalGrad", "InvGrad")
def reciprocal_grad(y: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Compute dX = -dY Y^2 for Y = 1 / X."""
    return -gradient * y * y


@computes("FloorDiv")
def floor_div(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Compute Y = floor(A / B); int64 has no kernel and is computed as int32, which suffices for step counts."""
    if a.dtype != tf.int64:
        return a // b
    return tf.cast(tf.cast(a, tf.int32) // tf.cast(b, tf.int32), tf.int64)


@computes("Expm1")
def expm1(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = e^X - 1."""
    return tf.exp(x) - 1.0


@computes("Log1p")
def log1p(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = log(1 + X)."""
    return tf.math.log(1.0 + x)


@computes("BitwiseAnd")
def bitwise_and(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Compute Y = the common bits; by a comparison for the sign bit, the mask that distinguishes -0 from 0."""
    sign = x.dtype.min
    number = tf.get_static_value(mask)
    if number is None or not (number == sign).all():
        return common_bits(x, mask)
    return tf.where(x < 0, tf.constant(sign, x.dtype), tf.zeros_like(x))


@computes("L2Loss")
def l2_loss(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = sum(X^2) / 2."""
    return 0.5 * tf.reduce_sum(tf.square(x))


@computes("Rint")
def rint(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = X rounded, with halves rounded to even."""
    return tf.round(x)


@computes("IsFinite")
def is_finite(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = (X - X = 0), which is false for infinities and NaN."""
    return tf.equal(x - x, 0.0)


@computes("Xlogy")
def xlogy(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Compute Z = X log Y, and 0 where X = 0."""
    zero = tf.equal(x, 0.0)
    return tf.where(zero, 0.0, x * tf.math.log(tf.where(zero, 1.0, y)))


@computes("Xdivy")
def xdivy(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Compute Z = X / Y, and 0 where X = 0."""
    zero = tf.equal(x, 0.0)
    return tf.where(zero, 0.0, x / tf.where(zero, 1.0, y))


@computes("Xlog1py")
def xlog1py(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Compute Z = X log(1 + Y), and 0 where X = 0."""
    return xlogy(x, 1.0 + y)
