"""Ops that move elements to other positions, found at export by running the op on the numbers of the positions."""

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.layout.open_batch import OPEN
from odt_sim.export.lowering.ops.creation import known, reshaped
from odt_sim.export.lowering.ops.matrices import band_of, diagonal_of, matrix_of, offset_of, with_diagonal
from odt_sim.export.lowering.registry import Memo, Refusal, Value, computes, lowers


def sizes(shape: tf.TensorShape) -> list[int]:
    """Return the sizes of a shape; the one that depends on the rows of the batch becomes `OPEN`."""
    found = [OPEN if size is None else int(size) for size in shape]
    if found.count(OPEN) > 1:
        raise Refusal("has several axes of variable size; give a batch size")
    return found


def at_export(function: tf.types.experimental.GenericFunction, *arrays: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the result of TensorFlow's op on arrays of position numbers."""
    with tf.init_scope():
        return np.asarray(function(*map(tf.constant, arrays)))


def taken(x: tf.Tensor, positions: NDArray[np.int32], kept: int) -> tf.Tensor:
    """Return the elements at some positions of the last axes, keeping the first axes; position 0 is an added zero.

    Args:
        x: `[..., numbers]`, where `...` are `kept` axes.
        positions: The positions, of any shape, counted from 1.
        kept: The number of first axes to keep.
    """
    shape = sizes(x.shape)[:kept]
    flat = reshaped(x, [-1, int(np.prod(x.shape[kept:]))])
    if not positions.all():
        flat, positions = tf.pad(flat, [[0, 0], [1, 0]]), positions + 1
    return reshaped(tf.gather(flat, positions.reshape(-1) - 1, axis=1), [*shape, *positions.shape])


def numbered(*shape: int) -> NDArray[np.int32]:
    """Return 1, 2, 3, ... as an array of a given shape."""
    return np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape)


@lowers("Roll")
def roll(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X with its last elements along some axes moved to the front."""
    x, shifts, axes = inputs
    for i, axis in enumerate(known(axes).reshape(-1)):
        size = x.shape[axis]
        if size is None:
            x = _rolled_rows(x, tf.reshape(shifts, [-1])[i], int(axis))
            continue
        first = int(-known(shifts).reshape(-1)[i] % max(size, 1))
        parts = tf.split(x, [first, size - first], axis) if first else []
        x = tf.concat(parts[::-1], axis) if parts else x
    return [x]


def _rolled_rows(x: tf.Tensor, shift: tf.Tensor, axis: int) -> tf.Tensor:
    """Return `x` rolled along an axis whose size depends on the rows of the batch."""
    size = tf.shape(x)[axis]
    return tf.gather(x, tf.math.floormod(tf.range(size) - shift, size), axis=axis)


@lowers("MatrixDiagV3")
def matrix_diag(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = matrices with diagonals X, filled with zeros or another number."""
    x, k, rows, columns, number = inputs
    if x.shape[-1] is None:
        return [matrix_of(x, offset_of(k), number)]
    axes = 1 if known(k).size == 1 or known(k)[0] == known(k)[1] else 2
    shape = [int(n) for n in x.shape[len(x.shape) - axes :]]
    settings = {"k": known(k), "num_rows": known(rows), "num_cols": known(columns), "align": op.get_attr("align")}
    positions = at_export(
        lambda own: tf.raw_ops.MatrixDiagV3(diagonal=own, padding_value=0, **settings), numbered(*shape)
    )
    value = taken(x, positions, len(x.shape) - axes)
    if np.any(known(number) != 0):
        value = tf.where(positions > 0, value, number)
    return [value]


@lowers("MatrixDiagPartV3")
def matrix_diag_part(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = diagonals of matrices."""
    x, k, _ = inputs
    if None in x.shape[-2:]:
        return [diagonal_of(x, offset_of(k))]
    positions = at_export(lambda own: tf.raw_ops.MatrixDiagPartV3(
        input=own, k=known(k), padding_value=0, align=op.get_attr("align")), numbered(*x.shape[-2:]))  # fmt: skip
    return [taken(x, positions, len(x.shape) - 2)]


@lowers("MatrixSetDiagV3")
def matrix_set_diag(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = matrices X with replaced diagonals."""
    x, diagonal, k = inputs
    if None in x.shape[-2:]:
        return [with_diagonal(x, diagonal, offset_of(k))]
    kept = len(x.shape) - 2
    shapes = [[int(n) for n in t.shape[kept:]] for t in (x, diagonal)]
    first, second = (numbered(*shape) for shape in shapes)
    positions = at_export(lambda own, new: tf.raw_ops.MatrixSetDiagV3(
        input=own, diagonal=new, k=known(k), align=op.get_attr("align")), first, first.size + second)  # fmt: skip
    joined = tf.concat([reshaped(t, [*sizes(t.shape)[:kept], int(np.prod(shape))])
                        for t, shape in zip((x, diagonal), shapes, strict=True)], -1)  # fmt: skip
    return [taken(joined, positions, kept)]


@lowers("Diag")
def diag(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y[i, ..., i, ...] = X[i, ...], else 0."""
    (x,) = inputs
    if x.shape.as_list() == [None]:
        return [matrix_of(x, tf.zeros([], tf.int32), tf.zeros([], x.dtype))]
    size = x.shape.num_elements()
    return [reshaped(taken(x, np.diag(numbered(size)), 0), [*x.shape, *x.shape])]


@lowers("DiagPart")
def diag_part(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y[i, ...] = X[i, ..., i, ...]."""
    shape = op.outputs[0].shape
    if inputs[0].shape.as_list() == [None, None]:
        return [diagonal_of(inputs[0], tf.zeros([], tf.int32))]
    size = shape.num_elements()
    return [reshaped(taken(inputs[0], np.diag(numbered(size, size)), 0), shape)]


@computes("MatrixBandPart")
def matrix_band_part(x: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
    """Compute Y = X within some diagonals, else 0."""
    if None in x.shape[-2:]:
        return band_of(x, lower, upper)
    shape = [int(n) for n in x.shape[-2:]]
    band = at_export(lambda ones: tf.linalg.band_part(ones, known(lower), known(upper)), np.ones(shape, np.int32)) > 0
    return tf.where(np.broadcast_to(band, [1] * (len(x.shape) - 2) + shape), x, tf.zeros([], x.dtype))


@lowers("ExtractImagePatches")
def extract_patches(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the elements of each window of X side by side."""
    (x,) = inputs
    settings = {name: op.get_attr(name) for name in ("ksizes", "strides", "rates", "padding")}
    positions = at_export(
        lambda own: tf.raw_ops.ExtractImagePatches(images=own, **settings), numbered(1, *(int(n) for n in x.shape[1:]))
    )
    return [taken(x, positions[0], 1)]


@lowers("MirrorPadGrad")
def mirror_pad_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY inside, plus dY of the mirrored edges at the elements that they repeat."""
    gradient, paddings = inputs
    skipped = int(op.get_attr("mode") == b"REFLECT")
    for axis, (before, after) in enumerate(known(paddings).tolist()):
        if not before and not after:
            continue
        size = gradient.shape[axis] - before - after
        left, middle, right = tf.split(gradient, [before, size, after], axis)
        gradient = middle + _placed(left, axis, skipped, size) + _placed(right, axis, size - after - skipped, size)
    return [gradient]


def _placed(edge: tf.Tensor, axis: int, start: int, size: int) -> tf.Tensor:
    """Return an edge reversed along an axis and placed at `start` in `size` zeros."""
    if not edge.shape[axis]:
        return tf.zeros([], edge.dtype)
    pads = [[0, 0]] * len(edge.shape)
    pads[axis] = [start, size - start - int(edge.shape[axis])]
    return tf.pad(tf.reverse(edge, [axis]), pads)


@computes("Cross")
def cross(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Compute C = the cross product of vectors: C[i] = A[i + 1] B[i + 2] - A[i + 2] B[i + 1]."""
    one, two = [1, 2, 0], [2, 0, 1]
    return tf.gather(a, one, axis=-1) * tf.gather(b, two, axis=-1) - tf.gather(a, two, axis=-1) * tf.gather(
        b, one, axis=-1
    )
