"""Sums and means, axis by axis; cumulative products; the fused batch normalization of Keras 2.

XNNPACK adds numbers one by one, so the error of a sum grows with its length. Summing along one axis and then the next
has an error thirty times smaller and takes no longer.
"""

from collections.abc import Sequence
from itertools import groupby
from math import prod

import tensorflow as tf

from odt_sim.export.lowering.layout.open_batch import OPEN
from odt_sim.export.lowering.ops.creation import FIRST, created, integers, known, reshaped, type_attribute
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers

MANY = 256  # the most numbers in one sum
USUAL_ROWS = 32  # assumed if the batch size is open


def sum_over(x: tf.Tensor, axes: set[int]) -> tf.Tensor:
    """Return the sum of `x` over some axes, which are dropped; long sums go axis by axis, from the first.

    Summing over the first axis keeps the longest vectors, which XNNPACK adds whole. XNNPACK sums only tensors with few axes,
    so short sums first join neighbouring axes that are both kept or both summed.
    """
    if prod(_size(x, axis) for axis in axes) > MANY and len(x.shape) <= 4:
        for dropped, axis in enumerate(sorted(axes)):
            x = _summed(x, [axis - dropped])
        return x
    longer = [(axis in axes, -1 if size is None else size) for axis, size in enumerate(x.shape) if size != 1]
    joined = [(gone, _joined([size for _, size in run])) for gone, run in groupby(longer, key=lambda axis: axis[0])]
    flat = reshaped(x, [size for _, size in joined])
    return _summed(flat, [i for i, (gone, _) in enumerate(joined) if gone])


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
    if len(x.shape) <= 4 and count <= MANY:
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


@lowers("Cumprod")
def cumprod(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y[i] = X[0] ... X[i] along an axis, by doubling: products of the last 1, 2, 4, ... numbers up to each i.

    D. Hillis and G. Steele, "Data parallel algorithms", 1986.
    """
    x, axis = inputs[0], int(known(inputs[1])) % len(inputs[0].shape)
    size = x.shape[axis]
    if size is None:
        raise Refusal("multiplies across the rows of the batch; give a batch size, or multiply along another axis")
    x = tf.reverse(x, [axis]) if op.get_attr("reverse") else x
    x = _later(x, axis, 1) if op.get_attr("exclusive") else x
    step = 1
    while step < size:
        x = x * _later(x, axis, step)
        step *= 2
    return [tf.reverse(x, [axis]) if op.get_attr("reverse") else x]


def _later(x: tf.Tensor, axis: int, step: int) -> tf.Tensor:
    """Return `x` shifted along an axis by `step` positions, with ones in front."""
    begin, length = [0] * len(x.shape), [OPEN if size is None else size for size in x.shape]
    length[axis] = max(x.shape[axis] - step, 0)
    pads = [[0, 0]] * len(x.shape)
    pads[axis] = [min(step, x.shape[axis]), 0]
    return tf.pad(tf.slice(x, begin, length), pads, constant_values=tf.ones([], x.dtype))


AXES = [0, 1, 2]


@lowers("FusedBatchNormV3")
def fused_batch_norm(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = scale (X - mean) / sqrt(variance + epsilon) + offset.

    In training, mean and variance are computed from X, and the running statistics become r <- (1 - f) r + f m, where m is
    the mean or the unbiased variance of X.
    """
    _check_format(op)
    x, scale, offset, mean, variance = inputs
    running = [mean, variance]
    if op.get_attr("is_training"):
        mean = tf.reduce_mean(x, AXES)
        variance = tf.reduce_mean(tf.square(x - mean), AXES)
        count = _count(x)
        new = [mean, variance * (count / tf.maximum(count - 1.0, 1.0))]
        factor = op.get_attr("exponential_avg_factor")
        running = new if factor == 1.0 else [(1.0 - factor) * r + factor * m for r, m in zip(running, new, strict=True)]
    normal = (x - mean) * (scale * tf.math.rsqrt(variance + op.get_attr("epsilon")))
    return [normal + offset, *running, mean, variance, variance]


@lowers("FusedBatchNormGradV3")
def fused_batch_norm_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dscale = sum(dY N), doffset = sum(dY) and dX, for N = (X - mean) / sqrt(variance + epsilon).

    In training, dX = scale (dY - mean(dY) - N mean(dY N)) / sqrt(variance + epsilon); otherwise,
    dX = scale dY / sqrt(variance + epsilon).
    """
    _check_format(op)
    gradient, x, scale, mean, variance, _ = inputs
    root = tf.math.rsqrt(variance + op.get_attr("epsilon"))
    normal = (x - mean) * root
    products = gradient * normal
    dx = gradient
    if op.get_attr("is_training"):
        dx = gradient - tf.reduce_mean(gradient, AXES) - normal * tf.reduce_mean(products, AXES)
    return [dx * (scale * root), tf.reduce_sum(products, AXES), tf.reduce_sum(gradient, AXES), mean, variance]


def _check_format(op: tf.Operation) -> None:
    if op.get_attr("data_format") != b"NHWC":
        raise Refusal('supports only data_format="channels_last"; use that')


def _count(x: tf.Tensor) -> tf.Tensor:
    """Return the number of values per channel."""
    if x.shape.is_fully_defined():
        return tf.constant(float(prod(x.shape[:3])))
    return tf.reduce_sum(tf.ones_like(x[..., :1]))
