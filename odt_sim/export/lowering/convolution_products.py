"""Convolutions as matrix products with banded kernels (see `banded_kernels`): rank-3 BATCH_MATMUL, which XNNPACK runs.

Moving memory costs as much as the products. So only columns are joined, as a few wide blocks; each kernel row gives one
product, and the products are added up, each at its height.
"""

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.banded_kernels import Band
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.registry import Memo
from odt_sim.export.lowering.windows import padded_by, part, sum_of

Bands = tuple[Band, Band]
"""The bands of rows and columns."""

PART = 256  # numbers in one sum
ONE_SUM = range(PART, 4 * PART + 1)  # positions per example that fit one sum
SPARE = 8  # one in so many rows or columns may be computed in vain


def convolved(x: tf.Tensor, kernel: tf.Tensor, bands: Bands, memo: Memo, *, adjoint: bool = False) -> tf.Tensor:
    """Return the sum over the rows' taps of joined(X) W[j], where W is the banded kernel along the columns.

    Args:
        x: `[batch, height, width, channels]`.
        kernel: `[height, width, channels, filters]`, with channels and filters exchanged if `adjoint`.
        bands: How the output depends on `x`.
        memo: Values shared between lowerings.
        adjoint: Whether the kernel's filters are the channels of `x`.

    Returns:
        `[batch, rows, columns, filters]`, possibly with extra rows and columns at the end.
    """
    rows, columns = bands
    weights = _placed(kernel, columns, adjoint=adjoint)
    lines = tf.split(weights, rows.kernel)
    joined = _joined(x, bands, memo)
    width = columns.blocks * weights.shape[2]
    places = sorted({o for o, _, _ in rows.taps})
    phases: list[tf.Tensor] = []
    for place, following in zip(places, [*places[1:], rows.outputs], strict=True):
        total = sum_of(_product(joined, lines[j], m, bands) for o, j, m in rows.taps if o == place)
        empty = [0 if phases else place, following - place - 1]  # positions without a tap
        phase = reshaped(total, [-1, rows.blocks, 1, width])
        phases.append(tf.pad(phase, [[0, 0], [0, 0], empty, [0, 0]]) if any(empty) else phase)
    shape = [-1, rows.blocks * rows.outputs, columns.blocks * columns.outputs, weights.shape[2] // columns.outputs]
    return reshaped(tf.concat(phases, 2) if len(phases) > 1 else phases[0], shape)


def filter_gradient(x: tf.Tensor, gradient: tf.Tensor, bands: Bands, memo: Memo) -> tf.Tensor:
    """Return dW, `[height, width, channels, filters]`: per kernel row the rows of joined(X) under it, times dY.

    Args:
        x: `[batch, height, width, channels]`.
        gradient: The gradient of the output of `convolved`, `[batch, rows, columns, filters]`.
        bands: How that output depends on `x`.
        memo: Values shared between lowerings.
    """
    rows, columns = bands
    joined = _joined(x, bands, memo)
    channels, filters = x.shape[3], gradient.shape[3]
    gradient = reshaped(gradient, [-1, rows.blocks, columns.blocks, columns.outputs * filters])
    if rows.kernel > 1 and rows.blocks * columns.blocks in ONE_SUM:
        products = _turned_products(joined, gradient, rows)
    else:
        products = [_adjoint_product(_met(joined[m % rows.inputs], m, rows), gradient) for _, _, m in rows.taps]
    total = tf.concat(products, 0) if len(products) > 1 else products[0]
    if not _trivial(columns):
        total = reshaped(total, [rows.kernel, -1, channels, columns.outputs, filters])
        total = reshaped(tf.transpose(total, [0, 1, 3, 2, 4]), [rows.kernel, -1, channels * filters])
        total = tf.matmul(_placement(columns, rows.kernel), total, transpose_a=True)
    return reshaped(total, [rows.kernel, columns.kernel, channels, filters])


def filter_gradient_of_joined(x: tf.Tensor, gradient: tf.Tensor, bands: Bands, memo: Memo) -> tf.Tensor:
    """Return dW as `filter_gradient` does, by the joined gradient, which the input gradient needs anyway.

    Args:
        x: `[batch, height, width, channels]`.
        gradient: The gradient of the output, `[batch, rows, columns, filters]`.
        bands: How the input gradient depends on it; blocks of rows have one row of it.
        memo: Values shared between lowerings.
    """
    rows, columns = bands
    channels, filters = x.shape[3], gradient.shape[3]
    (joined,) = _joined(gradient, bands, memo)
    image = padded_by(x, (0, 0), (rows.blocks * rows.outputs, columns.blocks * columns.outputs))
    lines = reshaped(image, [-1, rows.blocks, rows.outputs, image.shape[2] * channels])
    shape = [-1, rows.blocks, columns.blocks, columns.outputs * channels]
    phases = {o: reshaped(part(lines, columns=slice(o, o + 1)), shape) for o in {o for o, _, _ in rows.taps}}
    taps = sorted(rows.taps, key=lambda tap: tap[1])
    under = [_moved(phases[o], _first(m, rows), joined.shape[1]) for o, _, m in taps]
    total = _adjoint_product(tf.concat(under, -1) if len(under) > 1 else under[0], joined)
    total = reshaped(total, [rows.kernel, columns.outputs, channels, -1, filters])
    total = reshaped(tf.transpose(total, [0, 3, 1, 2, 4]), [rows.kernel, -1, channels * filters])
    if not _trivial(columns):
        total = tf.matmul(_placement(columns, rows.kernel), total, transpose_a=True)
    return reshaped(total, [rows.kernel, columns.kernel, channels, filters])


def is_joined(x: tf.Tensor, bands: Bands, memo: Memo) -> bool:
    """Return whether an input's columns have been joined for these bands."""
    return ("joined", x.ref(), bands) in memo


def _moved(x: tf.Tensor, first: int, height: int) -> tf.Tensor:
    """Return an image of another height whose row `first` is row 0 of `x`; rows outside `x` are zeros."""
    own = part(x, slice(max(-first, 0), height - first))
    return padded_by(own, (max(first, 0), 0), (height, own.shape[2]))


def _joined(x: tf.Tensor, bands: Bands, memo: Memo) -> list[tf.Tensor]:
    """Return the input with neighbouring columns side by side: a tensor per row of a block of rows.

    Each is `[batch, blocks of rows, blocks of columns, offsets * columns per block * channels]`, without the zeros above and
    below if the rows are bare.
    """
    key = ("joined", x.ref(), bands)
    if key not in memo:
        rows, columns = bands
        width = columns.input_blocks * columns.inputs
        before, height = (0, x.shape[1]) if rows.bare else (rows.before, rows.input_blocks * rows.inputs)
        image = padded_by(x, (before, columns.before), (height, width))
        lines = reshaped(image, [-1, height // rows.inputs, rows.inputs, width * x.shape[3]])
        phases = [lines[:, :, i : i + 1] for i in range(rows.inputs)] if rows.inputs > 1 else [lines]
        shape = [-1, height // rows.inputs, columns.input_blocks, columns.inputs * x.shape[3]]
        memo[key] = [_side_by_side(reshaped(phase, shape), columns) for phase in phases]
    return list(memo[key])


def _side_by_side(blocks: tf.Tensor, columns: Band) -> tf.Tensor:
    if columns.input_blocks == 1:
        return blocks
    parts = [part(blocks, columns=slice(k, k + columns.blocks)) for k in columns.offsets]
    return tf.concat(parts, -1) if len(parts) > 1 else parts[0]


def _first(m: int, rows: Band) -> int:
    """Return the first joined row under a kernel row; negative if zeros precede it."""
    return m // rows.inputs - (rows.before if rows.bare else 0)


def _met(joined: tf.Tensor, m: int, rows: Band) -> tf.Tensor:
    """Return the input rows under a kernel row, one per output row, padded with zeros outside the image."""
    first = _first(m, rows)
    own = part(joined, slice(max(first, 0), first + rows.blocks))
    return padded_by(own, (max(-first, 0), 0), (rows.blocks, own.shape[2]))


def _product(joined: list[tf.Tensor], weights: tf.Tensor, m: int, bands: Bands) -> tf.Tensor:
    """Return the contribution of one kernel row to the output: the rows under it times its weights.

    A slice copies, so the smaller of input and output is sliced, unless too many rows would be multiplied in vain.
    """
    rows, columns = bands
    _, taken, given = weights.shape
    x = joined[m % rows.inputs]
    late = taken > given and (x.shape[1] - rows.blocks) * SPARE <= rows.blocks
    x = x if late else _met(x, m, rows)
    product = reshaped(tf.matmul(reshaped(x, [1, -1, taken]), weights), [-1, x.shape[1], columns.blocks, given])
    return _met(product, m, rows) if late else product


def _turned_products(joined: list[tf.Tensor], gradient: tf.Tensor, rows: Band) -> list[tf.Tensor]:
    """Return `_adjoint_product` per kernel row, transposing the joined input once; each example is one sum."""
    _, _, width, filters = gradient.shape
    turned = [tf.transpose(reshaped(x, [-1, x.shape[1] * width, x.shape[3]]), [0, 2, 1]) for x in joined]
    flat = reshaped(gradient, [-1, rows.blocks * width, filters])
    products = []
    for _, _, m in rows.taps:
        first, own = _first(m, rows) * width, turned[m % rows.inputs]
        start, stop = max(first, 0), min(first + rows.blocks * width, own.shape[2])
        product = tf.matmul(_span(own, 2, start, stop), _span(flat, 1, start - first, stop - first))
        products.append(tf.reduce_sum(product, 0, keepdims=True))
    return products


def _span(x: tf.Tensor, axis: int, start: int, stop: int) -> tf.Tensor:
    """Return a range of the second or third of three axes; the tensor itself, without a copy, if the range is complete."""
    if (start, stop) == (0, x.shape[axis]):
        return x
    return x[:, start:stop] if axis == 1 else x[:, :, start:stop]


def _adjoint_product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return A^T B, `[1, columns of A, columns of B]`; long sums are split into parts, which reduces the error.

    Args:
        a: `[batch, rows, blocks, columns of A]`.
        b: `[batch, rows, blocks, columns of B]`.
    """
    _, rows, blocks, left = a.shape
    right = b.shape[3]
    together = next((n for n in range(1, rows + 1) if rows % n == 0 and n * blocks >= PART), None)
    if together is None:
        return tf.matmul(reshaped(a, [1, -1, left]), reshaped(b, [1, -1, right]), transpose_a=True)
    a, b = (
        reshaped(a, [-1, together * blocks, left]),
        reshaped(b, [-1, together * blocks, right]),
    )
    return tf.reduce_sum(tf.matmul(a, b, transpose_a=True), 0, keepdims=True)


def _placed(kernel: tf.Tensor, columns: Band, *, adjoint: bool) -> tf.Tensor:
    """Return the banded kernel: `[height, offsets * inputs * channels, outputs * filters]`."""
    height, width, channels, filters = kernel.shape
    placed = reshaped(kernel, [height, width, channels * filters])
    if not _trivial(columns):
        placed = tf.matmul(_placement(columns, height), placed)
    if columns.outputs == 1 and not adjoint:
        return reshaped(placed, [height, -1, filters])
    placed = reshaped(placed, [height, -1, columns.outputs, channels, filters])
    turned = tf.transpose(placed, [0, 1, 4, 2, 3] if adjoint else [0, 1, 3, 2, 4])
    return reshaped(turned, [height, -1, columns.outputs * (channels if adjoint else filters)])


def _placement(columns: Band, height: int) -> tf.Tensor:
    return tf.constant(np.repeat(columns.placement[np.newaxis], height, 0))


def _trivial(columns: Band) -> bool:
    """Return whether the banded kernel is the kernel itself."""
    return np.array_equal(columns.placement, np.eye(columns.kernel))
