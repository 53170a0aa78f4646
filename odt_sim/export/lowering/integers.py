"""Bits of integers, and buckets of numbers."""

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.constant_folding import evaluated, known
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


def bitwise_and(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the common bits of integers, by X + Y = (X xor Y) + 2 (X and Y); last bits are separate to avoid overflow."""
    high_x, high_y, different = x // 2, y // 2, tf.bitwise.bitwise_xor(x, y)
    return high_x + high_y - different // 2 + (x - 2 * high_x) * (y - 2 * high_y)


@computes("BitwiseOr")
def bitwise_or(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Compute Z = (X xor Y) + (X and Y)."""
    return tf.bitwise.bitwise_xor(x, y) + bitwise_and(x, y)


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
