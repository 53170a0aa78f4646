"""Arithmetic without a TFLite op, and its gradients: numbers, bits, tests for NaN and infinity, quantization."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.ops.creation import evaluated, known
from odt_sim.export.lowering.registry import Memo, Refusal, Value, computes_by, lowers


def common_bits(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the common bits of integers, by X + Y = (X xor Y) + 2 (X and Y); last bits are separate to avoid overflow."""
    high_x, high_y, different = x // 2, y // 2, tf.bitwise.bitwise_xor(x, y)
    return high_x + high_y - different // 2 + (x - 2 * high_x) * (y - 2 * high_y)


def _common_bits_or_sign(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the common bits; by a comparison for the sign bit, the mask that distinguishes -0 from 0."""
    sign = x.dtype.min
    number = tf.get_static_value(mask)
    if number is None or not (number == sign).all():
        return common_bits(x, mask)
    return tf.where(x < 0, tf.constant(sign, x.dtype), tf.zeros_like(x))


def _power_of_two(exponent: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.pow(2.0, tf.cast(exponent, tf.float32)), exponent.dtype)


def _floor_div(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return floor(A / B); int64 has no kernel and is computed as int32, which suffices for step counts."""
    if a.dtype != tf.int64:
        return a // b
    return tf.cast(tf.cast(a, tf.int32) // tf.cast(b, tf.int32), tf.int64)


def _zero_where_zero(factor: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Return a product, and 0 where one of its factors is 0, even if another one is infinite or NaN."""
    return tf.where(tf.equal(factor, 0.0), tf.zeros_like(value), value)


def _one_where_zero(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.equal(x, 0.0), 1.0, y)


computes_by(
    {
        "Invert": lambda x: -1 - x,  # two's complement
        "LeftShift": lambda x, bits: x * _power_of_two(bits),
        "RightShift": lambda x, bits: x // _power_of_two(bits),
        "BitwiseAnd": _common_bits_or_sign,
        "BitwiseOr": lambda x, y: tf.bitwise.bitwise_xor(x, y) + common_bits(x, y),
        "FloorDiv": _floor_div,
        "Reciprocal": lambda x: 1.0 / x,
        "Inv": lambda x: 1.0 / x,
        "ReciprocalGrad": lambda y, gradient: -gradient * y * y,
        "InvGrad": lambda y, gradient: -gradient * y * y,
        "RsqrtGrad": lambda y, gradient: _zero_where_zero(gradient, gradient * (-0.5 * y * y * y)),
        "SqrtGrad": lambda y, gradient: _zero_where_zero(gradient, 0.5 * gradient / y),
        "Expm1": lambda x: tf.exp(x) - 1.0,
        "Log1p": lambda x: tf.math.log(1.0 + x),
        "L2Loss": lambda x: 0.5 * tf.reduce_sum(tf.square(x)),
        "Rint": tf.round,
        "IsFinite": lambda x: tf.equal(x - x, 0.0),  # infinities and NaN give NaN
        "IsNan": lambda x: tf.not_equal(x, x),
        # XNNPACK's absolute value of infinity is not infinite.
        "IsInf": lambda x: tf.logical_and(tf.equal(x, x), tf.not_equal(x - x, 0.0)),
        "Xlogy": lambda x, y: _zero_where_zero(x, x * tf.math.log(_one_where_zero(y, x))),
        "Xlog1py": lambda x, y: _zero_where_zero(x, x * tf.math.log(_one_where_zero(1.0 + y, x))),
        "Xdivy": lambda x, y: _zero_where_zero(x, x / _one_where_zero(y, x)),
        "CheckNumerics": tf.identity,  # a file cannot stop at NaN or infinity
    }
)


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
