"""ATen ops on shapes: views, joins, slices and constant tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.torch.elementwise import all_alike
from odt_sim.export.torch.registry import OPS, Function, axes_of, computes


@computes("view", "reshape", "_unsafe_view", "view_copy")
def reshape(x: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Return the values in another shape."""
    return tf.reshape(x, list(shape))


@computes("permute")
def permute(x: tf.Tensor, dims: Sequence[int]) -> tf.Tensor:
    """Reorder all axes."""
    return tf.transpose(x, axes_of(list(dims), len(x.shape)))


@computes("transpose")
def transpose(x: tf.Tensor, a: int, b: int) -> tf.Tensor:
    """Swap two axes."""
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return tf.transpose(x, order)


@computes("unsqueeze")
def unsqueeze(x: tf.Tensor, dim: int) -> tf.Tensor:
    """Insert an axis of size 1."""
    return tf.expand_dims(x, dim)


@computes("squeeze")
def squeeze(x: tf.Tensor, dim: Any = None) -> tf.Tensor:
    """Remove axes of size 1."""
    axes = [d for d in axes_of(dim, len(x.shape)) if x.shape[d] == 1]
    return tf.squeeze(x, axes) if axes else x


@computes("expand")
def expand(x: tf.Tensor, sizes: Sequence[int], *, implicit: bool = False) -> tf.Tensor:
    """Broadcast to a shape; -1 keeps a size."""
    known = [1] * (len(sizes) - len(x.shape)) + x.shape.as_list()
    return tf.broadcast_to(x, [k if s == -1 else s for s, k in zip(sizes, known, strict=True)])


@computes("repeat")
def repeat(x: tf.Tensor, repeats: Sequence[int]) -> tf.Tensor:
    """Repeat along each axis."""
    return tf.tile(tf.reshape(x, [1] * (len(repeats) - len(x.shape)) + x.shape.as_list()), list(repeats))


@computes("repeat_interleave")
def repeat_interleave(x: tf.Tensor, repeats: int, dim: int | None = None, *, output_size: Any = None) -> tf.Tensor:
    """Repeat each slice."""
    return tf.repeat(tf.reshape(x, [-1]) if dim is None else x, repeats, axis=dim or 0)


@computes("cat")
def cat(tensors: Sequence[tf.Tensor], dim: int = 0) -> tf.Tensor:
    """Join tensors along an axis."""
    return tf.concat(all_alike(tensors), dim)


@computes("stack")
def stack(tensors: Sequence[tf.Tensor], dim: int = 0) -> tf.Tensor:
    """Join tensors along a new axis."""
    return tf.stack(all_alike(tensors), dim)


@computes("split", "split_with_sizes", "unsafe_split")
def split(x: tf.Tensor, size: Any, dim: int = 0) -> list[tf.Tensor]:
    """Split an axis into parts of one size or of given sizes."""
    length = int(x.shape[dim])
    sizes = [min(size, length - i) for i in range(0, length, size)] if isinstance(size, int) else list(size)
    return list(tf.split(x, sizes, axis=dim))


@computes("unbind")
def unbind(x: tf.Tensor, dim: int = 0) -> list[tf.Tensor]:
    """Return the slices along an axis."""
    return list(tf.unstack(x, axis=dim))


@computes("select")
def select(x: tf.Tensor, dim: int, index: int) -> tf.Tensor:
    """Return one slice."""
    return x[_at(x, dim, index)]


@computes("slice")
def slice_(x: tf.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> tf.Tensor:
    """Return every `step`-th slice of a range."""
    end = None if end is not None and end >= int(x.shape[dim]) else end
    return x[_at(x, dim, slice(start, end, step))]


def _at(x: tf.Tensor, dim: int, index: Any) -> tuple[Any, ...]:
    return (*[slice(None)] * (dim % len(x.shape)), index)


def _with_slice(x: tf.Tensor, value: tf.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Return x with new values in a range of slices, as after `x[start:end] = value`."""
    start, end, _ = slice(start, end).indices(x.shape[dim])
    if step == 1:
        return tf.concat([x[_at(x, dim, slice(0, start))], value, x[_at(x, dim, slice(end, None))]], dim)
    order = np.arange(x.shape[dim])
    order[start:end:step] = len(order) + np.arange(value.shape[dim])
    return tf.gather(tf.concat([x, value], dim), order, axis=dim)


def _with_selected(x: tf.Tensor, value: tf.Tensor, dim: int, index: int) -> tf.Tensor:
    index %= x.shape[dim]
    return _with_slice(x, tf.expand_dims(value, dim % len(x.shape)), dim, index, index + 1)


PUT_BACK: dict[str, Function] = {"slice": _with_slice, "select": _with_selected, "to": lambda x, value, *_: value}
"""The function that returns a tensor with new values in a view, by the op that creates the view.

`to` creates a view of the whole tensor if it does not change the type.
"""


@computes("slice_scatter")
def slice_scatter(x: tf.Tensor, value: tf.Tensor, *place: Any) -> tf.Tensor:
    """Return x with new values in a range of slices."""
    return _with_slice(x, value, *place)


@computes("select_scatter")
def select_scatter(x: tf.Tensor, value: tf.Tensor, *place: Any) -> tf.Tensor:
    """Return x with one slice replaced."""
    return _with_selected(x, value, *place)


@computes("copy", "fill")
def copy(x: tf.Tensor, value: Any, *_: Any) -> tf.Tensor:
    """Return values in the shape and type of a tensor."""
    return tf.broadcast_to(tf.cast(value, x.dtype), x.shape)


@computes("flip")
def flip(x: tf.Tensor, dims: Sequence[int]) -> tf.Tensor:
    """Reverse the order along axes."""
    return tf.reverse(x, list(dims))


@computes("roll")
def roll(x: tf.Tensor, shifts: Any, dims: Any = ()) -> tf.Tensor:
    """Shift values along axes, with wrap-around."""
    if not dims:
        return tf.reshape(tf.roll(tf.reshape(x, [-1]), shifts[0], 0), x.shape)
    return tf.roll(x, list(shifts), list(dims))


@computes("unfold")
def unfold(x: tf.Tensor, dim: int, size: int, step: int) -> tf.Tensor:
    """Return the windows along an axis, with their elements on a new last axis."""
    dim %= len(x.shape)
    count = (x.shape[dim] - size) // step + 1
    windows = [x[_at(x, dim, slice(i, i + (count - 1) * step + 1, step))] for i in range(size)]
    return tf.stack(windows, -1)


@computes("pad", "constant_pad_nd")
def pad(x: tf.Tensor, pads: Sequence[int], mode: Any = "constant", value: float | None = None) -> tf.Tensor:
    """Pad the last axes; `pads` begins with the last axis, and negative pads cut."""
    if not isinstance(mode, str):
        mode, value = "constant", mode
    behind = [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)][::-1]
    widths = [(0, 0)] * (len(x.shape) - len(behind)) + behind
    x = x[tuple(slice(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(x.shape, widths, strict=True))]
    widths = [(max(low, 0), max(high, 0)) for low, high in widths]
    if mode == "reflect":
        return tf.pad(x, widths, "REFLECT")
    if mode == "constant":
        return tf.pad(x, widths, constant_values=tf.cast(value or 0, x.dtype))
    for axis, width in enumerate(widths):
        x = _lengthened(x, axis, width, mode)
    return x


def _lengthened(x: tf.Tensor, axis: int, width: tuple[int, int], mode: str) -> tf.Tensor:
    """Pad one axis with its values from the opposite end, or with those at the edge."""
    (low, high), size = width, x.shape[axis]
    if mode == "circular":
        before, behind = x[_at(x, axis, slice(size - low, size))], x[_at(x, axis, slice(0, high))]
    else:
        before = tf.repeat(x[_at(x, axis, slice(0, 1))], low, axis=axis)
        behind = tf.repeat(x[_at(x, axis, slice(size - 1, size))], high, axis=axis)
    parts = [part for part, count in ((before, low), (x, 1), (behind, high)) if count]
    return tf.concat(parts, axis) if len(parts) > 1 else x


for _name, _mode in (("reflection_pad", "reflect"), ("replication_pad", "replicate")):
    OPS.update(dict.fromkeys([f"{_name}{d}d" for d in (1, 2, 3)], lambda x, pads, mode=_mode: pad(x, pads, mode)))


@computes("full")
def full(shape: Any, value: Any = 0, *, dtype: tf.DType | None = None, **_: Any) -> tf.Tensor:
    """Return a constant tensor."""
    return tf.fill(list(shape), tf.cast(value, dtype or (tf.float32 if isinstance(value, float) else tf.int32)))


OPS["full_like"] = lambda x, value, *, dtype=None, **_: full(x.shape, value, dtype=dtype or x.dtype)
OPS["empty"] = lambda shape, *, dtype=None, **_: full(shape, 0, dtype=dtype or tf.float32)
OPS["empty_permuted"] = lambda shape, _, *, dtype=None, **__: OPS["empty"](shape, dtype=dtype)


@computes("arange")
def arange(*bounds: Any, dtype: tf.DType | None = None, **_: Any) -> tf.Tensor:
    """Return a range of numbers."""
    dtype = dtype or (tf.float32 if any(isinstance(b, float) for b in bounds) else tf.int32)
    return tf.range(*bounds, dtype=dtype)


@computes("linspace")
def linspace(start: float, end: float, steps: int, *, dtype: tf.DType | None = None, **_: Any) -> tf.Tensor:
    """Return evenly spaced numbers, exactly as PyTorch: grids sample images at whole coordinates, where digits matter."""
    import torch

    return tf.cast(torch.linspace(start, end, steps).numpy(), dtype or tf.float32)


@computes("scalar_tensor", "tensor")
def scalar(value: Any, *, dtype: tf.DType | None = None, **_: Any) -> tf.Tensor:
    """Return a number as a tensor."""
    return tf.constant(value, dtype or (tf.float32 if isinstance(value, float) else tf.int32))


@computes("to", "_to_copy")
def to(x: tf.Tensor, *given: Any, dtype: tf.DType | None = None, **_: Any) -> tf.Tensor:
    """Convert the type; devices and memory formats are ignored."""
    kinds = [g if isinstance(g, tf.DType) else g.dtype for g in given if isinstance(g, tf.DType | tf.Tensor)]
    return tf.cast(x, dtype or (kinds[0] if kinds else x.dtype))
