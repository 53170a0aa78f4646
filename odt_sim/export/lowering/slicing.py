"""Padding, and gradients of slices and of resizing."""

from math import prod

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.depthwise import InputGradient
from odt_sim.export.lowering.open_batch import OPEN, sizes_of
from odt_sim.export.lowering.padding import keep_before_padding
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers, tensor_of


@lowers("Pad", "PadV2")
def pad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X padded by a number; an unpadded last axis is joined with the one before into fewer, longer rows."""
    x, paddings, *number = inputs
    pads, value = tf.get_static_value(paddings), number[0] if number else 0
    if (
        pads is None
        or len(pads) < 2
        or pads[-1].any()
        or None in x.shape[-2:]
        or x.shape[:-2].as_list().count(None) > 1
    ):
        return [tf.pad(x, paddings, constant_values=value)]
    *_, width, channels = x.shape
    open_shape = [OPEN if size is None else size for size in x.shape[:-2]]
    joined = np.concatenate([pads[:-2], pads[-2:-1] * channels])
    flat = tf.pad(reshaped(x, [*open_shape, width * channels]), joined, constant_values=value)
    sizes = [OPEN if size is None else size for size in flat.shape[:-1]]
    padded = reshaped(flat, [*sizes, width + sum(pads[-2]), channels])
    if not number or tf.get_static_value(value) == 0:
        keep_before_padding(padded, x, pads.tolist(), memo)
    return [padded]


@lowers("Slice", deferred=True)
def slice_(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = a box of X; only the box of an image's gradient is computed if it has all examples and channels."""
    x, *box = inputs
    begin, size = (tensor_of(t) for t in box)
    cropped = _cropped(op, x, begin) if isinstance(x, InputGradient) else None
    return [tf.slice(tensor_of(x), begin, size) if cropped is None else cropped]


def _cropped(op: tf.Operation, x: InputGradient, begin: tf.Tensor) -> tf.Tensor | None:
    """Return some rows and columns of an image's gradient; None if examples or channels are sliced, too."""
    first, image, part = tf.get_static_value(begin), op.inputs[0].shape, op.outputs[0].shape
    if first is None or not part.is_fully_defined() or (image[0], image[3]) != (part[0], part[3]):
        return None
    return x.cropped((int(first[1]), int(first[2])), (part[1], part[2]))


@lowers("StridedSliceGrad", deferred=True)
def strided_slice_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY at the sliced positions, else 0."""
    shape, *bounds, gradient = inputs
    sizes = sizes_of(shape)
    begin, end, strides = ([int(n) for n in known(tensor_of(t))] for t in bounds)
    slices = _slices(op, len(sizes), begin, end, strides)
    ranges = [_positions(s, size) for s, size in zip(slices, sizes, strict=True)]
    if not all(ranges):  # an empty slice, such as from a rotary embedding that rotates all numbers
        return [tf.zeros(tensor_of(shape))]
    gradient = reshaped(
        tensor_of(gradient), [-1 if size == OPEN else len(r) for r, size in zip(ranges, sizes, strict=True)]
    )
    backwards = [axis for axis, r in enumerate(ranges) if r.step < 0]
    gradient = tf.reverse(gradient, backwards) if backwards else gradient
    for axis, r in enumerate(ranges):
        gradient = _spread(gradient, axis, abs(r.step))
    pads = [[0, 0] if size == OPEN else [min(r), size - 1 - max(r)] for r, size in zip(ranges, sizes, strict=True)]
    return [tf.pad(gradient, pads)]


def _positions(sliced: slice, size: int) -> range:
    """Return the positions of a slice along an axis; a slice of the rows must be complete."""
    if size != OPEN:
        return range(*sliced.indices(size))
    if sliced.start or sliced.stop is not None or sliced.step not in (None, 1):
        raise Refusal("takes only some of the rows; give a batch size")
    return range(1)


def _slices(op: tf.Operation, rank: int, begin: list[int], end: list[int], strides: list[int]) -> list[slice]:
    """Return the slice of each of the `rank` axes from the op's masks, which have a bit per entry of `begin`."""
    masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    open_begin, open_end, ellipsis, new, shrunk = (
        [bool(op.get_attr(mask) >> i & 1) for i in range(len(begin))] for mask in masks
    )
    slices = []
    for i in range(len(begin)):
        if ellipsis[i]:
            slices += [slice(None)] * (rank - (len(begin) - 1 - sum(new)))
        elif shrunk[i]:
            slices.append(slice(begin[i], begin[i] + 1 or None))
        elif not new[i]:
            first, last = (None if open_begin[i] else begin[i]), (None if open_end[i] else end[i])
            slices.append(slice(first, last, strides[i]))
    return slices + [slice(None)] * (rank - len(slices))


def _spread(x: tf.Tensor, axis: int, step: int) -> tf.Tensor:
    """Return `x` with `step - 1` zeros between neighbours along an axis."""
    if step == 1:
        return x
    sizes = [OPEN if size is None else size for size in x.shape]
    before, count, after = sizes[:axis], sizes[axis], sizes[axis + 1 :]
    width = abs(prod(after))
    flat = tf.pad(reshaped(x, [-1, count, width]), [[0, 0], [0, 0], [0, (step - 1) * width]])
    flat = reshaped(flat, [-1, count * step, width])[:, : (count - 1) * step + 1]
    return reshaped(flat, [*before, (count - 1) * step + 1, *after])


@lowers("ResizeBilinearGrad", "ResizeNearestNeighborGrad")
def resize_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = R^T dY S, where resizing is Y = R X S^T: R for the rows, S for the columns."""
    gradient = inputs[0]
    _, height, width, channels = op.outputs[0].shape
    _, rows, columns, _ = gradient.shape
    down, across = _resizing(op, height, rows), _resizing(op, width, columns)
    upright = tf.matmul(down, reshaped(gradient, [-1, rows, columns * channels]))
    dx = tf.matmul(across, reshaped(upright, [-1, columns, channels]))
    return [reshaped(dx, [-1, height, width, channels])]


def _resizing(op: tf.Operation, size: int, new_size: int) -> tf.Tensor:
    """Return the transposed matrix that resizes one axis, `[1, size, new_size]`: the images of the unit vectors."""
    settings = {name: op.get_attr(name) for name in ("align_corners", "half_pixel_centers")}
    resize = tf.raw_ops.ResizeBilinear if op.type == "ResizeBilinearGrad" else tf.raw_ops.ResizeNearestNeighbor
    with tf.init_scope():
        units = tf.reshape(tf.eye(size), [1, size, 1, size])
        matrix = resize(images=units, size=[new_size, 1], **settings).numpy()
    return tf.constant(matrix.reshape(1, new_size, size).swapaxes(1, 2))
