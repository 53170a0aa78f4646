"""Convolutions as matrix products with banded kernels (see `banded_kernels`): rank-3 BATCH_MATMUL, which XNNPACK runs.

Moving memory costs as much as the products. So usually only columns are joined, into a few wide blocks. Each kernel row
gives one product, and the products are added up, each at its height. With few channels, rows are joined, too.
"""

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.banded_kernels import Band
from odt_sim.export.lowering.creation import reshaped
from odt_sim.export.lowering.joined_columns import (
    Bands,
    first_row,
    joined_columns,
    joined_pixels,
    lines_from,
    matrices,
    rows_under,
)
from odt_sim.export.lowering.registry import Memo
from odt_sim.export.lowering.windows import sum_of

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
    if joins_rows(bands, *weights.shape[1:]):
        product = tf.matmul(matrices(joined_pixels(x, bands)), reshaped(weights, [1, -1, weights.shape[2]]))
        return reshaped(
            product, [-1, rows.blocks, columns.blocks * columns.outputs, weights.shape[2] // columns.outputs]
        )
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


def joins_rows(bands: Bands, taken: int, given: int) -> bool:
    """Return whether to join the rows under a kernel, too: with few channels, joined rows are small next to the product."""
    rows, _ = bands
    return rows.outputs == 1 and len(rows.taps) == rows.kernel > 1 and rows.kernel * taken <= 2 * given


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
    if columns.outputs == 1 and not adjoint:
        return reshaped(placed, [height, -1, filters])
    placed = reshaped(placed, [height, -1, columns.outputs, channels, filters])
    turned = tf.transpose(placed, [0, 1, 4, 2, 3] if adjoint else [0, 1, 3, 2, 4])
    return reshaped(turned, [height, -1, columns.outputs * (channels if adjoint else filters)])


def placement(columns: Band, height: int) -> tf.Tensor:
    """Return the band's placement, repeated for each of `height` kernel rows."""
    return tf.constant(np.repeat(columns.placement[np.newaxis], height, 0))
