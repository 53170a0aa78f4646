"""Arithmetic without a TFLite op, and its gradients: numbers, bits, tests for NaN and infinity, quantization."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.ops.creation import evaluated, known
from odt_sim.export.lowering.registry import Memo, Refusal, Value, computes, lowers


@computes("Invert")
def invert(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = the bits of X inverted: -1 - X in two's complement."""
    return -1 - x


def _power_of_two(exponent: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.pow(2.0, tf.cast(exponent, tf.float32)), exponent.dtype)


@computes("LeftShift")
def left_shift(x: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Compute Y = X 2^bits."""
    return x * _power_of_two(bits)


@computes("RightShift")
def right_shift(x: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Compute Y = floor(X / 2^bits)."""
    return x // _power_of_two(bits)


def common_bits(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the common bits of integers, by X + Y = (X xor Y) + 2 (X and Y); last bits are separate to avoid overflow."""
    high_x, high_y, different = x // 2, y // 2, tf.bitwise.bitwise_xor(x, y)
    return high_x + high_y - different // 2 + (x - 2 * high_x) * (y - 2 * high_y)


@computes("BitwiseOr")
def bitwise_or(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Compute Z = (X xor Y) + (X and Y)."""
    return tf.bitwise.bitwise_xor(x, y) + common_bits(x, y)


@lowers("Bucketize")
def bucketize(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the number of boundaries that are at most X."""
    (x,) = inputs
    return [_count(tf.expand_dims(x, -1) >= tf.constant(op.get_attr("boundaries"), x.dtype), tf.int32)]


@lowers("LowerBound", "UpperBound")
def bound(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the number of a row's sorted numbers that are below (`UpperBound`: at most) each value of the row."""
    numbers, values = (tf.expand_dims(t, axis) for t, axis in zip(inputs, (1, 2), strict=True))
    before = numbers < values if op.type == "LowerBound" else numbers <= values
    return [_count(before, op.outputs[0].dtype)]


def _count(condition: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.cast(tf.reduce_sum(tf.cast(condition, tf.int32), -1), dtype)


def _size(traced: tf.Tensor, size: tf.Tensor) -> int:
    """Return the size of a count, which is also known if its minimum and maximum size are equal."""
    bounds = []
    for kind in (
        "Minimum",
        "Maximum",
    ):  # the traced size is min(maximum, max(minimum, needed size))
        numbers = [evaluated(t) for t in traced.op.inputs] if traced.op.type == kind else []
        bounds += [int(n) for n in numbers if n is not None]
        traced = next((t for t, n in zip(traced.op.inputs, numbers, strict=False) if n is None), traced)
    return bounds[0] if len(bounds) == 2 and bounds[0] == bounds[1] else int(known(size))


@lowers("DenseBincount")
def bincount(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the count of each number below the size (or the sum of its weights), for each row of a matrix."""
    x, _, weights = inputs
    places = tf.one_hot(x, _size(op.inputs[1], inputs[1]), dtype=op.outputs[0].dtype)
    if op.get_attr("binary_output"):
        return [tf.reduce_max(places, -2)]
    weighted = places * tf.expand_dims(weights, -1) if weights.shape.num_elements() else places
    return [tf.reduce_sum(weighted, -2)]


@lowers("InTopKV2")
def in_top_k(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = whether fewer than k predictions of a row exceed the prediction of its target."""
    predictions, targets, k = inputs
    if predictions.shape[-1] is None:
        raise Refusal("needs a fixed number of classes; give the model a fixed shape")
    chosen = tf.one_hot(targets, predictions.shape[-1], on_value=True, off_value=False, dtype=tf.bool)
    own = tf.reduce_max(tf.where(chosen, predictions, np.float32(-np.inf)), -1, keepdims=True)
    return [_count(predictions > own, k.dtype) < k]


@computes("Reciprocal", "Inv")
def reciprocal(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = 1 / X."""
    return 1.0 / x


@lowers("Rsqrt")
def rsqrt(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = 1 / sqrt(X).

    On x86, XNNPACK's RSQRT of 0 is NaN instead of infinity, so UnitNormalization would turn a row of zeros into NaN.
    """
    (x,) = inputs
    return [tf.math.rsqrt(x) if _above_zero(op.inputs[0].op) else 1.0 / tf.abs(tf.sqrt(x))]


@lowers("Sqrt")
def sqrt(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the square root of X.

    The converter turns A / sqrt(X) into A times XNNPACK's RSQRT of X, which is NaN for X = 0, unless an op is in between.
    """
    y = tf.sqrt(inputs[0])
    return [tf.abs(y) if _divides(op.outputs[0]) and not _above_zero(op.inputs[0].op) else y]


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


class Steps(NamedTuple):
    """The steps of a quantization.

    Attributes:
        low: The lowest number.
        high: The highest number.
        size: The size of a step.
    """

    low: tf.Tensor
    high: tf.Tensor
    size: tf.Tensor


def _steps(op: tf.Operation, low: tf.Tensor, high: tf.Tensor) -> Steps:
    """Return the steps of a range, shifted so that 0 is a step."""
    first, last = float(op.get_attr("narrow_range")), 2.0 ** op.get_attr("num_bits") - 1.0
    size = (high - low) / (last - first)
    zero = tf.clip_by_value(tf.floor(first - low / size + 0.5), first, last)
    return Steps((first - zero) * size, (last - zero) * size, size)


def _range(op: tf.Operation, inputs: list[Value]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the ends of an op's range: its last two inputs, or its attributes."""
    if "Args" in op.type:
        return tf.constant(op.get_attr("min")), tf.constant(op.get_attr("max"))
    low, high = inputs[-2:]
    return low, high


@lowers("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quant(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X clipped to the range and rounded to its steps."""
    steps = _steps(op, *_range(op, inputs))
    zero = tf.floor(0.5 - steps.low / steps.size)
    shifted = tf.clip_by_value(inputs[0], steps.low, steps.high) - steps.low
    return [tf.floor(shifted / steps.size - zero + 0.5) * steps.size]


@lowers(
    "FakeQuantWithMinMaxArgsGradient",
    "FakeQuantWithMinMaxVarsGradient",
    "FakeQuantWithMinMaxVarsPerChannelGradient",
)
def fake_quant_gradient(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY inside the range, else 0; the gradients of the ends are the sums of dY below and above."""
    gradient, x = inputs[:2]
    steps = _steps(op, *_range(op, inputs))
    below, above = x < steps.low, x > steps.high
    zero = tf.zeros_like(gradient)
    inside = tf.where(tf.logical_or(below, above), zero, gradient)
    if "Args" in op.type:
        return [inside]
    axes = list(range(len(x.shape) - 1 if "PerChannel" in op.type else len(x.shape)))
    return [inside, *(tf.reduce_sum(tf.where(outside, gradient, zero), axes) for outside in (below, above))]
