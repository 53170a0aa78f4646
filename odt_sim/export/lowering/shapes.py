"""Ops that return tensors unchanged, repeated or reshaped."""

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.open_batch import OPEN, Sizes
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers, tensor_of

FEW = 1 << 10
"""The maximum number of ones in a constant that repeats a tensor."""


@lowers("IdentityN", "StopGradient", "PreventGradient")
def identity(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X for each input."""
    return inputs


@lowers("OnesLike")
def ones_like(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = 1 for each element of X."""
    return [tf.raw_ops.ZerosLike(x=inputs[0]) + tf.ones([], inputs[0].dtype)]


@lowers("Reshape", deferred=True)
def reshape(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the elements of X in another shape."""
    x, shape = tensor_of(inputs[0]), inputs[1]
    if x.op.type == "Squeeze" and op.outputs[0].shape.rank == 0:
        raise Refusal("reduces a product of vectors to a scalar, which XNNPACK fails to run; use keras.ops.sum(a * b)")
    sizes = [OPEN if size is None else size for size in op.outputs[0].shape]
    if OPEN in sizes and not (isinstance(shape, Sizes) and sizes.count(OPEN) == 1):
        return [tf.reshape(x, tensor_of(shape))]
    return [reshaped(x, sizes)]


@lowers("Size")
def size(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the number of elements of X, as for the rows that a mask keeps."""
    return [tf.reduce_prod(tf.shape(inputs[0], out_type=op.outputs[0].dtype))]


@lowers("Range", deferred=True)
def range_(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = start, start + step, ..., below the limit."""
    start, limit, step = inputs
    fixed = not isinstance(limit, Sizes) or any(isinstance(t, Sizes) for t in (start, step))
    if fixed or (int(known(start)), int(known(step))) != (0, 1):
        return [tf.range(*map(tensor_of, inputs))]
    return [tf.cast(limit.batch.numbers(int(limit.per_row)), op.outputs[0].dtype)]


@lowers("Fill", deferred=True)
def fill(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = a tensor filled with one number."""
    shape, number = inputs[0], tensor_of(inputs[1])
    if not isinstance(shape, Sizes) or shape.known is None:
        return [tf.fill(tensor_of(shape), number)]
    return [_repeated(reshaped(number, [1] * len(shape.known)), shape)]


@lowers("Tile", deferred=True)
def tile(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X repeated along each axis."""
    x, times = tensor_of(inputs[0]), inputs[1]
    once = isinstance(times, Sizes) and times.known is not None
    if not once or any(size != 1 for size, n in zip(x.shape, times.known, strict=True) if n == -1):
        return [_tiled(x, tensor_of(times))]
    return [_repeated(x, times)]


@lowers("BroadcastTo", deferred=True)
def broadcast_to(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X repeated along the axes where it has one element and the shape has more."""
    x, shape = tensor_of(inputs[0]), inputs[1]
    if not isinstance(shape, Sizes) or shape.known is None:
        return [tf.broadcast_to(x, tensor_of(shape))]
    x = reshaped(x, [1] * (len(shape.known) - len(x.shape)) + [-1 if n is None else n for n in x.shape])
    once = np.array([size != 1 for size in x.shape])
    return [_repeated(x, shape.where(once, 1))]


def _repeated(x: tf.Tensor, times: Sizes) -> tf.Tensor:
    """Return `x` repeated along each axis; `x` has one element along the axis that grows with the rows."""
    for axis, per_row in enumerate(times.per_row):
        if per_row:
            zeros = reshaped(times.batch.zeros(int(per_row)), [-1 if i == axis else 1 for i in range(len(x.shape))])
            x = tf.logical_or(x, tf.cast(zeros, tf.bool)) if x.dtype.is_bool else x + tf.cast(zeros, x.dtype)
    fixed = np.where(times.per_row, 1, times.fixed)
    return _tiled(x, tf.constant(fixed)) if np.any(fixed != 1) else x


def _single(x: tf.Tensor, times: NDArray[np.int32]) -> bool:
    """Return whether an image of several channels is repeated a few times along axes with one element."""
    fits = all(size == 1 or n == 1 for size, n in zip(x.shape, times, strict=True))
    return bool(fits and x.shape[3] != 1 and np.prod(times) <= FEW)


def _tiled(x: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
    """Return `x` repeated, along the last axis as X 1^T, because TILE copies single numbers one by one.

    Images are repeated along other axes by a product with ones, which XNNPACK runs, too.
    """
    fixed = tf.get_static_value(times)
    if x.dtype == tf.float32 and fixed is not None and np.size(fixed) == 4 and _single(x, fixed):
        return x * tf.ones(fixed)
    if not x.dtype.is_floating or fixed is None or x.shape[-1:] != [1] or np.any(fixed[:-1] != 1):
        return tf.tile(x, times)
    product = tf.matmul(reshaped(x, [1, -1, 1]), tf.ones([1, 1, fixed[-1]], x.dtype))
    return reshaped(product, [*(OPEN if size is None else size for size in x.shape[:-1]), fixed[-1]])
