"""ATen ops that read and write elements by index."""

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.torch.registry import Function, Refusal, computes, expect


@computes("gather")
def gather(x: tf.Tensor, dim: int, index: tf.Tensor, *, sparse_grad: bool = False) -> tf.Tensor:
    """Return the elements at an index along an axis, for each position."""
    rank = len(x.shape)
    dim %= rank
    order = [d for d in range(rank) if d != dim] + [dim]
    back = [order.index(d) for d in range(rank)]
    index = tf.maximum(index, 0)  # LiteRT fails at index -1, which a length of 0 produces in rows that are left out
    taken = tf.gather(tf.transpose(x, order), tf.transpose(index, order), axis=rank - 1, batch_dims=rank - 1)
    return tf.transpose(taken, back)


@computes("index_select")
def index_select(x: tf.Tensor, dim: int, index: tf.Tensor) -> tf.Tensor:
    """Return slices by index."""
    return tf.gather(x, index, axis=dim)


@computes("index")
def index(x: tf.Tensor, indices: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """Return elements by integer index along one or more axes; if these are not adjacent, the index axes come first."""
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    given = [each for each in indices if each is not None]
    if any(i.dtype == tf.bool for i in given):
        raise Refusal("indexes by a mask, whose result has no fixed shape; multiply by the mask, or use torch.where")
    given = [_from_front(i, int(x.shape[axis])) for i, axis in zip(given, axes, strict=True)]
    if len(given) == 1:
        return tf.gather(x, given[0], axis=axes[0])
    if axes[0] == 0 and len(given) == len(indices):
        shape = reduce(tf.broadcast_dynamic_shape, map(tf.shape, given))
        return tf.gather_nd(x, tf.stack([tf.broadcast_to(i, shape) for i in given], -1))
    place = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    sizes = [int(x.shape[axis]) for axis in axes]
    joined = tf.transpose(x, [*rest[:place], *axes, *rest[place:]])
    joined = tf.reshape(joined, [*joined.shape[:place], prod(sizes), *joined.shape[place + len(axes) :]])
    at = reduce(lambda before, each: before * each[1] + each[0], zip(given, sizes, strict=True), 0)
    return tf.gather(joined, at, axis=place)


@computes("index_put")
def index_put(
    x: tf.Tensor, indices: Sequence[tf.Tensor | None], values: tf.Tensor, accumulate: bool = False
) -> tf.Tensor:
    """Return x with new values at indices of some axes, or, under a mask, with one value or one value per row."""
    given = [i for i in indices if i is not None]
    if any(i.dtype == tf.bool for i in given):
        mask = given[0]
        if len(indices) > 1 or accumulate or len(values.shape) > len(x.shape) - len(mask.shape):
            raise Refusal("assigns several values under a mask, whose number is not fixed; use torch.where")
        mask = tf.reshape(mask, [*mask.shape, *[1] * (len(x.shape) - len(mask.shape))])
        return tf.where(mask, tf.cast(values, x.dtype), x)
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    given = [_from_front(i, int(x.shape[axis])) for i, axis in zip(given, axes, strict=True)]
    shape = reduce(tf.broadcast_static_shape, (each.shape for each in given)).as_list()
    at = tf.stack([tf.broadcast_to(i, shape) for i in given], -1)
    place = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0  # of the index axes among the values' axes
    kept = [x.shape[axis] for axis in rest]
    values = tf.broadcast_to(tf.cast(values, x.dtype), [*kept[:place], *shape, *kept[place:]])
    own = range(place, place + len(shape))
    values = tf.transpose(values, [*own, *(axis for axis in range(len(values.shape)) if axis not in own)])
    order = [*axes, *rest]
    put = tf.tensor_scatter_nd_add if accumulate else tf.tensor_scatter_nd_update
    return tf.transpose(put(tf.transpose(x, order), at, values), [order.index(axis) for axis in range(len(order))])


@computes("diagonal")
def diagonal(x: tf.Tensor, offset: int = 0, first: int = 0, second: int = 1) -> tf.Tensor:
    """Return the diagonals of matrices on the last axis."""
    first, second = first % len(x.shape), second % len(x.shape)
    rest = [axis for axis in range(len(x.shape)) if axis not in (first, second)]
    rows, columns = int(x.shape[first]), int(x.shape[second])
    flat = tf.reshape(tf.transpose(x, [*rest, first, second]), [*(x.shape[axis] for axis in rest), rows * columns])
    at = [row * columns + row + offset for row in range(rows) if 0 <= row + offset < columns]
    return tf.gather(flat, tf.constant(at, tf.int32), axis=-1)


@computes("scatter")
def scatter(x: tf.Tensor, dim: int, index: tf.Tensor, values: Any) -> tf.Tensor:
    """Return x with new values at an index along an axis, for each position."""
    return _scattered(x, dim, index, values, "set")


@computes("scatter_add")
def scatter_add(x: tf.Tensor, dim: int, index: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Return x with values added at an index along an axis, for each position."""
    return _scattered(x, dim, index, values, "sum")


@computes("scatter_reduce")
def scatter_reduce(
    x: tf.Tensor, dim: int, index: tf.Tensor, values: tf.Tensor, how: str, *, include_self: bool = True
) -> tf.Tensor:
    """Return x reduced with values at an index along an axis, for each position, by sum or mean."""
    expect("include_self", include_self, True)
    if how == "mean":
        counts = _scattered(tf.ones_like(x), dim, index, 1.0, "sum")
        return _scattered(x, dim, index, values, "sum") / counts
    return _scattered(x, dim, index, values, how)


_SCATTERS: dict[str, Function] = {"set": tf.tensor_scatter_nd_update, "sum": tf.tensor_scatter_nd_add}


def _scattered(x: tf.Tensor, dim: int, index: tf.Tensor, values: Any, how: str) -> tf.Tensor:
    expect("reduce", how, *_SCATTERS)
    dim %= len(x.shape)
    shape = index.shape.as_list()
    places = [np.broadcast_to(each, shape) for each in np.indices(shape, np.int32, sparse=True)]
    at = tf.stack([index if axis == dim else tf.constant(place) for axis, place in enumerate(places)], -1)
    if isinstance(values, tf.Tensor) and len(values.shape) == len(shape):
        values = values[tuple(slice(size) for size in shape)]
    return _SCATTERS[how](x, at, tf.broadcast_to(tf.cast(values, x.dtype), shape))


def _from_front(index: tf.Tensor, size: int) -> tf.Tensor:
    """Return indices counted from the front; negative indices count from the end."""
    static = tf.get_static_value(index)
    if static is not None and (static >= 0).all():
        return index
    return tf.where(index < 0, index + size, index)
