"""Padding, and gradients of slices and of resizing."""

from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.layout.open_batch import OPEN, numbers_of
from odt_sim.export.lowering.ops.creation import copied_as_real, reshaped
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
    return [reshaped(flat, [*sizes, width + sum(pads[-2]), channels])]


@lowers("StridedSlice")
def strided_slice(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X at positions of each axis; new axes are added later, because TFLite cannot if several axes are open."""
    x, *bounds = inputs
    new = [i for i in range(op.get_attr("new_axis_mask").bit_length()) if op.get_attr("new_axis_mask") >> i & 1]
    if not new or x.shape.as_list().count(None) < 2 or op.get_attr("shrink_axis_mask"):
        return copied_as_real(op, inputs)  # real and imaginary parts of complex numbers, too
    ellipsis, rank = op.get_attr("ellipsis_mask").bit_length() - 1, len(x.shape)
    y = x[tuple(_slices(op, rank, *map(numbers_of, bounds)))]
    for i in new:
        skipped = rank - (inputs[1].shape[0] - len(new) - 1) - 1 if 0 <= ellipsis < i else 0
        y = tf.expand_dims(y, i + skipped)
    return [y]


@lowers("StridedSliceGrad", deferred=True)
def strided_slice_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY at the sliced positions, else 0."""
    shape, *bounds, gradient = inputs
    begin, end, strides = map(numbers_of, bounds)
    sizes = numbers_of(shape)
    slices = _slices(op, len(sizes), begin, end, strides)
    if not _has_fixed_positions(slices, sizes):
        return [_at_positions(tensor_of(gradient), slices, sizes)]
    ranges = [
        range(*s.indices(size)) if isinstance(size, int) else range(1) for s, size in zip(slices, sizes, strict=True)
    ]
    if not all(ranges):  # an empty slice, such as from a rotary embedding that rotates all numbers
        return [tf.zeros(tensor_of(shape))]
    lengths = [len(r) if isinstance(size, int) else OPEN for r, size in zip(ranges, sizes, strict=True)]
    gradient = reshaped(tensor_of(gradient), lengths)
    backwards = [axis for axis, r in enumerate(ranges) if r.step < 0]
    gradient = tf.reverse(gradient, backwards) if backwards else gradient
    for axis, r in enumerate(ranges):
        gradient = _spread(gradient, axis, abs(r.step))
    pads = [
        [min(r), size - 1 - max(r)] if isinstance(size, int) else [0, 0] for r, size in zip(ranges, sizes, strict=True)
    ]
    return [tf.pad(gradient, pads)]


def _has_fixed_positions(slices: list[slice], sizes: list[int | tf.Tensor]) -> bool:
    """Return whether at most one axis depends on the rows of the batch, of which the slice takes all."""
    axes = [s for s, size in zip(slices, sizes, strict=True) if not isinstance(size, int)]
    bounds = [bound for s in slices for bound in (s.start, s.stop, s.step)]
    return len(axes) <= 1 and all(map(_is_complete, axes)) and all(isinstance(bound, int | None) for bound in bounds)


def _is_complete(sliced: slice) -> bool:
    bounds = (sliced.start, sliced.stop, sliced.step)
    return all(isinstance(bound, int | None) for bound in bounds) and bounds in (
        (None, None, None),
        (None, None, 1),
        (0, None, 1),
    )


def _at_positions(gradient: tf.Tensor, slices: list[slice], sizes: list[int | tf.Tensor]) -> tf.Tensor:
    """Return a gradient at the sliced positions, else 0, if the positions depend on the rows of the batch."""
    positions = [tf.range(size)[s] for s, size in zip(slices, sizes, strict=True)]
    gradient = tf.reshape(gradient, tf.stack([tf.size(own) for own in positions]))
    for axis, own in enumerate(positions):
        if not _is_complete(slices[axis]):
            sources = tf.scatter_nd(own[:, tf.newaxis], 1 + tf.range(tf.size(own)), [sizes[axis]])
            pads = [[int(i == axis), 0] for i in range(len(sizes))]
            gradient = tf.gather(tf.pad(gradient, pads), sources, axis=axis)
    return gradient


def _slices(op: tf.Operation, rank: int, begin: list[Any], end: list[Any], strides: list[Any]) -> list[slice]:
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
            last = begin[i] + 1
            slices.append(slice(begin[i], None if isinstance(last, int) and last == 0 else last))
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


@lowers("LookupTableFindV2")
def find(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = default + sum((values - default) [keys = X]) with the table's keys and values as constants."""
    table, x, default = inputs
    types = {"Tkeys": op.inputs[1].dtype, "Tvalues": op.outputs[0].dtype}
    strings = next((kind.name for kind in types.values() if not kind.is_integer), None)
    if strings:
        raise Refusal(
            f"looks up a {strings}; look it up in the data, before the model, and pass the numbers to the model"
        )
    with tf.init_scope():
        keys, values = (t.numpy().astype(np.int32) for t in tf.raw_ops.LookupTableExportV2(table_handle=table, **types))
    x, default = tf.cast(x, tf.int32), tf.cast(default, tf.int32)
    found = tf.cast(tf.equal(x[..., tf.newaxis], keys), tf.int32)
    return [tf.cast(default + tf.reduce_sum(found * (values - default), -1), op.outputs[0].dtype)]
