"""Convolutions and their kernels' gradients as products with banded kernels (see `bands`): rank-3 BATCH_MATMUL, by XNNPACK.

Moving memory costs as much as the products. So only columns are joined, into a few wide blocks. Each kernel row gives one
product, and the products are added up, each at its height.
"""

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.layout.bands import (
    Band,
    Bands,
    concatenated,
    first_row,
    joined_columns,
    lines_from,
    matrices,
    rows_under,
)
from odt_sim.export.lowering.layout.windows import sum_of
from odt_sim.export.lowering.ops.creation import reshaped
from odt_sim.export.lowering.registry import Memo

SPARE = 8  # at most one in this many rows or columns may be computed needlessly


def convolved(x: tf.Tensor, kernel: tf.Tensor, bands: Bands, memo: Memo, *, adjoint: bool = False) -> tf.Tensor:
    """Return the sum over the rows' taps of joined(X) W[j], where W is the banded kernel along the columns.

    Args:
        x: `[batch, height, width, channels]`.
        kernel: `[height, width, channels, filters]`, with channels and filters exchanged if `adjoint`.
        bands: The dependence of the output on `x`.
        memo: Values shared between lowerings.
        adjoint: Whether the kernel's filters are the channels of `x`.

    Returns:
        `[batch, rows, columns, filters]`, possibly with extra rows and columns at the end.
    """
    rows, columns = bands
    if _pointwise(rows) and _pointwise(columns):
        (joined,) = joined_columns(x, bands, memo)
        weights = reshaped(kernel, [1, *kernel.shape[2:]])  # not transposed, which would be a copy in memory
        product = tf.matmul(matrices(joined), weights, transpose_b=adjoint)
        return reshaped(product, [-1, rows.blocks, columns.blocks, product.shape[2]])
    weights = _placed(kernel, columns, adjoint=adjoint)
    width = columns.blocks * weights.shape[2]
    lines = tf.split(weights, rows.kernel) if rows.kernel > 1 else [weights]  # XNNPACK has no SPLIT into one part
    joined = joined_columns(x, bands, memo)
    places = sorted({o for o, _, _ in rows.taps})
    phases: list[tf.Tensor] = []
    for place, following in zip(places, [*places[1:], rows.outputs], strict=True):
        total = sum_of(_product(joined, lines[j], m, bands) for o, j, m in rows.taps if o == place)
        empty = [0 if phases else place, following - place - 1]  # positions without a tap
        phase = reshaped(total, [-1, rows.blocks, 1, width])
        phases.append(tf.pad(phase, [[0, 0], [0, 0], empty, [0, 0]]) if any(empty) else phase)
    shape = [-1, rows.blocks * rows.outputs, columns.blocks * columns.outputs, weights.shape[2] // columns.outputs]
    return reshaped(tf.concat(phases, 2) if len(phases) > 1 else phases[0], shape)


def _pointwise(band: Band) -> bool:
    """Return whether each position depends only on the same input position, and no pooling leaves positions unused."""
    return band.kernel == band.inputs == band.outputs == 1 and band.blocks == band.size


def _product(joined: list[tf.Tensor], weights: tf.Tensor, m: int, bands: Bands) -> tf.Tensor:
    """Return the contribution of one kernel row to the output: the rows under it times its weights.

    Slicing copies, so the smaller of input and output is sliced, unless too many rows would be multiplied needlessly.
    """
    rows, columns = bands
    _, taken, given = weights.shape
    x = joined[m % rows.inputs]
    late = taken > given and (x.shape[1] - rows.blocks) * SPARE <= rows.blocks
    x = x if late else rows_under(x, m, rows)
    product = reshaped(tf.matmul(matrices(x), weights), [-1, x.shape[1], columns.blocks * given])
    return lines_from(product, first_row(m, rows), rows.blocks) if late else product


def _placed(kernel: tf.Tensor, columns: Band, *, adjoint: bool) -> tf.Tensor:
    """Return the banded kernel: `[height, offsets * inputs * channels, outputs * filters]`."""
    height, width, channels, filters = kernel.shape
    placed = reshaped(kernel, [height, width, channels * filters])
    if not columns.trivial:
        placed = tf.matmul(placement(columns, height), placed)
    if not adjoint:
        return reshaped(placed, [height, -1, filters])
    turned = tf.transpose(reshaped(placed, [height, -1, columns.outputs, channels, filters]), [0, 1, 4, 2, 3])
    return reshaped(turned, [height, -1, columns.outputs * channels])


def placement(columns: Band, height: int) -> tf.Tensor:
    """Return the band's placement, repeated for each of `height` kernel rows."""
    return tf.constant(np.repeat(columns.placement[np.newaxis], height, 0))


def filter_gradient(x: tf.Tensor, gradient: tf.Tensor, bands: Bands, memo: Memo) -> tf.Tensor:
    """Return dW, `[height, width, channels, filters]`: for each kernel row, the rows of joined(X) under it times dY.

    Args:
        x: `[batch, height, width, channels]`.
        gradient: The gradient of the output of `convolved`, `[batch, rows, columns, filters]`.
        bands: The dependence of that output on `x`.
        memo: Values shared between lowerings.
    """
    rows, columns = bands
    channels, filters = x.shape[3], gradient.shape[3]
    joined = joined_columns(x, bands, memo)
    products = [_adjoint_product(rows_under(joined[m % rows.inputs], m, rows), gradient) for _, _, m in rows.taps]
    total = concatenated(products, 0)
    if not columns.trivial:
        total = reshaped(total, [rows.kernel, -1, channels * filters])
        total = tf.matmul(placement(columns, rows.kernel), total, transpose_a=True)
    return reshaped(total, [rows.kernel, columns.kernel, channels, filters])


def _adjoint_product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return A^T B, `[1, columns of A, columns of B]`; long sums are split into parts, which reduces the error.

    Args:
        a: `[batch, rows, blocks, columns of A]`.
        b: `[batch, rows, blocks, columns of B]`.
    """
    product = tf.matmul(matrices(a), matrices(b), transpose_a=True)
    return product if product.shape[0] == 1 else tf.reduce_sum(product, 0, keepdims=True)
