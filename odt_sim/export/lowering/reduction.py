"""Sums and means, over one axis after the other.

XNNPACK adds up numbers one by one: of many, the error grows with their number. Summed along one axis first and then along
the next, the same numbers have an error thirty times smaller and take no longer.
"""

from itertools import groupby
from math import prod

import tensorflow as tf

from odt_sim.export.lowering.folding import known
from odt_sim.export.lowering.registry import Memo, Value, lowers

MANY = 256  # numbers to a sum


def sum_over(x: tf.Tensor, axes: set[int]) -> tf.Tensor:
    """Returns the sum of `x` over some axes, which are gone; many numbers are summed axis by axis, from the last.

    XNNPACK sums over the axes of tensors of few axes only, so neighbours that share their fate are joined where there are
    few numbers.
    """
    if prod(x.shape[axis] for axis in axes) > MANY and len(x.shape) <= 4:
        for axis in sorted(axes, reverse=True):
            x = tf.reduce_sum(x, axis)
        return x
    longer = [(axis in axes, size) for axis, size in enumerate(x.shape) if size > 1]
    joined = [(gone, prod(size for _, size in run)) for gone, run in groupby(longer, key=lambda axis: axis[0])]
    flat = tf.reshape(x, [size for _, size in joined])
    return tf.reduce_sum(flat, [i for i, (gone, _) in enumerate(joined) if gone])


@lowers("Sum", "Mean")
def sum_(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = the sum, or the mean, of X over some axes."""
    x, axes = inputs
    reduce = tf.reduce_sum if op.type == "Sum" else tf.reduce_mean
    if not x.shape.is_fully_defined() or not x.dtype.is_floating:
        return [reduce(x, axes, keepdims=op.get_attr("keep_dims"))]
    reduced = {int(axis) % len(x.shape) for axis in known(axes).reshape(-1)}
    count = prod(x.shape[axis] for axis in reduced)
    if len(x.shape) <= 4 and count <= MANY:
        return [reduce(x, sorted(reduced), keepdims=op.get_attr("keep_dims"))]
    total = tf.reshape(sum_over(x, reduced), op.outputs[0].shape)
    return [total if op.type == "Sum" else total * (1.0 / count)]
