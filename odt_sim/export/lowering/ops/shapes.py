"""Ops that return tensors unchanged, repeated, joined or reshaped."""

from math import prod

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.layout.open_batch import OPEN, Sizes
from odt_sim.export.lowering.ops.creation import known, reshaped
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


@lowers("ConcatV2")
def concat(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = [X_1 X_2 ...] along an axis.

    TFLite's converter replaces the concatenation of all slices of a tensor by a reshape, whatever the axes of slicing and
    concatenation are. If these differ, the slices are stacked instead.
    """
    parts = list(op.inputs)[:-1]
    sliced, place = parts[0].op, int(known(inputs[-1])) % len(op.outputs[0].shape)
    whole = sliced.type == "Unpack" and [t.ref() for t in parts] == [t.ref() for t in sliced.outputs]
    if not whole or sliced.get_attr("axis") % len(sliced.inputs[0].shape) == place:
        return [tf.concat(inputs[:-1], place)]
    stacked = tf.stack(inputs[:-1], place)
    sizes = [-1 if size is None else size for size in op.outputs[0].shape]
    return [reshaped(stacked, sizes)]


KERNEL = 4  # the most axes that TFLite's kernels support


def _sizes(x: tf.Tensor) -> list[int]:
    if None in x.shape[1:]:
        raise Refusal("has an axis of variable size; give the model a fixed shape")
    return [OPEN, *(int(n) for n in x.shape[1:])]


@lowers("SpaceToBatchND")
def space_to_batch(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y: each position within the blocks of padded X becomes a separate batch; axis by axis, from the last."""
    x, blocks, pads = inputs
    if len(x.shape) <= KERNEL:
        return [tf.raw_ops.SpaceToBatchND(input=x, block_shape=blocks, paddings=pads)]
    around = [[0, 0], *known(pads).tolist()]
    x = tf.pad(x, around + [[0, 0]] * (len(x.shape) - len(around)))
    for axis, block in reversed(list(enumerate(known(blocks).tolist(), 1))):
        if block > 1:
            _, *others = _sizes(x)
            before, size, after = prod(others[: axis - 1]), others[axis - 1] // block, prod(others[axis:])
            apart = reshaped(x, [OPEN, before, size, block, after])
            others[axis - 1] = size
            x = reshaped(tf.transpose(apart, [3, 0, 1, 2, 4]), [OPEN, *others])
    return [x]


@lowers("BatchToSpaceND")
def batch_to_space(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y: the positions of each block side by side again, without the cropped positions; axis by axis."""
    x, blocks, crops = inputs
    if len(x.shape) <= KERNEL:
        return [tf.raw_ops.BatchToSpaceND(input=x, block_shape=blocks, crops=crops)]
    for axis, block in enumerate(known(blocks).tolist(), 1):
        if block > 1:
            _, *others = _sizes(x)
            before, size, after = prod(others[: axis - 1]), others[axis - 1], prod(others[axis:])
            apart = reshaped(x, [block, OPEN, before, size, after])
            others[axis - 1] = size * block
            x = reshaped(tf.transpose(apart, [1, 2, 3, 0, 4]), [OPEN, *others])
    for axis, (first, last) in enumerate(known(crops).tolist(), 1):
        if first or last:
            x = tf.split(x, [first, x.shape[axis] - first - last, last], axis)[1]
    return [x]
