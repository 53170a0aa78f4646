"""Sums and means, axis by axis.

XNNPACK adds numbers one by one, so the error of a sum grows with its length. Summing along one axis and then the next has
an error thirty times smaller and takes no longer.
"""

from collections.abc import Sequence
from itertools import groupby
from math import prod

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import integers, reshaped
from odt_sim.export.lowering.creation import FIRST, created, type_attribute
from odt_sim.export.lowering.image_rows import is_reshaped, rows_of
from odt_sim.export.lowering.registry import Memo, Value, lowers

MANY = 256  # the most numbers in one sum
USUAL_ROWS = 32  # assumed if the batch size is open


def sum_over(x: tf.Tensor, axes: set[int]) -> tf.Tensor:
    """Return the sum of `x` over some axes, which are dropped; long sums go axis by axis, from the first.

    Summing over the first axis keeps the longest vectors, which XNNPACK adds whole. XNNPACK sums only tensors with few axes,
    so short sums first join neighbouring axes that are both kept or both summed.
    """
    if (prod(_size(x, axis) for axis in axes) > MANY or is_reshaped(x)) and len(x.shape) <= 4:
        for dropped, axis in enumerate(sorted(axes)):
            x = _summed_once(x, axis - dropped)
        return x
    longer = [(axis in axes, -1 if size is None else size) for axis, size in enumerate(x.shape) if size != 1]
    joined = [(gone, _joined([size for _, size in run])) for gone, run in groupby(longer, key=lambda axis: axis[0])]
    flat = reshaped(x, [size for _, size in joined])
    return _summed(flat, [i for i, (gone, _) in enumerate(joined) if gone])


def _summed_once(x: tf.Tensor, axis: int) -> tf.Tensor:
    if axis > 1 or not is_reshaped(x):
        return _summed(x, [axis])
    kept = [-1 if size is None else size for i, size in enumerate(x.shape) if i != axis]
    return reshaped(_summed(rows_of(x), [axis]), kept)


def _summed(x: tf.Tensor, axes: Sequence[int], *, mean: bool = False, keep: bool = False) -> tf.Tensor:
    attributes = {
        "T": type_attribute(x.dtype),
        "Tidx": type_attribute(tf.int32),
        "keep_dims": tf.compat.v1.AttrValue(b=keep),
    }
    kind = "Mean" if mean else "Sum"
    return created(kind, [x, integers(axes)], [x.dtype], attributes, name=f"{FIRST}{kind}")[0]


def _size(x: tf.Tensor, axis: int) -> int:
    """Return the size of an axis; a typical size for an open number of rows."""
    return USUAL_ROWS if x.shape[axis] is None else int(x.shape[axis])


def _joined(sizes: list[int]) -> int:
    return -1 if -1 in sizes else prod(sizes)


@lowers("Sum", "Mean")
def sum_(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the sum or the mean of X over some axes."""
    x, axes = inputs
    reduce = tf.reduce_sum if op.type == "Sum" else tf.reduce_mean
    keep = op.get_attr("keep_dims")
    if not x.dtype.is_floating or tf.get_static_value(axes) is None:
        return [reduce(x, axes, keepdims=keep)]
    reduced = {int(axis) % len(x.shape) for axis in known(axes).reshape(-1)}
    count = prod(_size(x, axis) for axis in reduced)
    if len(x.shape) <= 4 and count <= MANY and not (is_reshaped(x) and 1 in reduced):
        return [_summed(x, sorted(reduced), mean=op.type == "Mean", keep=keep) if reduced else x]
    if op.type == "Mean" and any(x.shape[axis] is None for axis in reduced):
        return [reduce(x, sorted(reduced), keepdims=keep)]
    kept = [1 if axis in reduced else -1 if size is None else size for axis, size in enumerate(x.shape)]
    shape = [size for axis, size in enumerate(kept) if keep or axis not in reduced]
    total = reshaped(sum_over(x, reduced), shape)
    return [total if op.type == "Sum" else total * (1.0 / count)]


@lowers("EuclideanNorm")
def euclidean_norm(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = sqrt(the sum of X^2 over some axes)."""
    x, axes = inputs
    return [tf.sqrt(tf.reduce_sum(tf.square(x), known(axes), keepdims=op.get_attr("keep_dims")))]
