"""Gradients of convolutions with respect to their kernels, as products of joined columns with rows of gradients."""

import tensorflow as tf

from odt_sim.export.lowering.banded_kernels import Band
from odt_sim.export.lowering.convolution_products import joins_rows, placement
from odt_sim.export.lowering.creation import reshaped
from odt_sim.export.lowering.joined_columns import (
    ONE_SUM,
    Bands,
    concatenated,
    first_row,
    joined_columns,
    joined_pixels,
    lines_from,
    matrices,
    rows_under,
)
from odt_sim.export.lowering.registry import Memo
from odt_sim.export.lowering.windows import cut, padded_by, part


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
    gradient = reshaped(gradient, [-1, rows.blocks, columns.blocks, columns.outputs * filters])
    if joins_rows(bands, channels * len(columns.placement) // columns.outputs, columns.outputs * filters):
        products = [_adjoint_product(joined_pixels(x, bands), gradient)]
    elif rows.kernel > 1 and rows.blocks * columns.blocks in ONE_SUM:
        products = _turned_products(joined_columns(x, bands, memo), gradient, rows)
    else:
        joined = joined_columns(x, bands, memo)
        products = [_adjoint_product(rows_under(joined[m % rows.inputs], m, rows), gradient) for _, _, m in rows.taps]
    total = concatenated(products, 0)
    if not columns.trivial:
        total = reshaped(total, [rows.kernel, -1, channels, columns.outputs, filters])
        total = reshaped(tf.transpose(total, [0, 1, 3, 2, 4]), [rows.kernel, -1, channels * filters])
    return _of_kernel(total, bands, channels, filters)


def filter_gradient_of_joined(x: tf.Tensor, gradient: tf.Tensor, bands: Bands, memo: Memo) -> tf.Tensor:
    """Return dW as `filter_gradient` does, but from the joined gradient, which the input gradient needs anyway.

    Args:
        x: `[batch, height, width, channels]`.
        gradient: The gradient of the output, `[batch, rows, columns, filters]`.
        bands: The dependence of the input gradient on `gradient`; blocks of rows have one row of `gradient`.
        memo: Values shared between lowerings.
    """
    rows, columns = bands
    channels, filters = x.shape[3], gradient.shape[3]
    (joined,) = joined_columns(gradient, bands, memo)
    image = padded_by(x, (0, 0), (rows.blocks * rows.outputs, columns.blocks * columns.outputs))
    phases = reshaped(image, [-1, rows.blocks, rows.outputs, image.shape[2] * channels])
    total = _total(_under(phases, rows, joined.shape[1]), joined)
    total = reshaped(total, [rows.kernel, columns.outputs, channels, -1, filters])
    total = reshaped(tf.transpose(total, [0, 3, 1, 2, 4]), [rows.kernel, -1, channels * filters])
    return _of_kernel(total, bands, channels, filters)


def _of_kernel(total: tf.Tensor, bands: Bands, channels: int, filters: int) -> tf.Tensor:
    """Return the kernel's gradient, `[height, width, channels, filters]`, from the banded kernel's gradient."""
    rows, columns = bands
    if not columns.trivial:
        total = tf.matmul(placement(columns, rows.kernel), total, transpose_a=True)
    return reshaped(total, [rows.kernel, columns.kernel, channels, filters])


def _turned_products(joined: list[tf.Tensor], gradient: tf.Tensor, rows: Band) -> list[tf.Tensor]:
    """Return `_adjoint_product` for each kernel row, transposing the joined input once; each example is one sum."""
    _, _, width, filters = gradient.shape
    turned = [tf.transpose(reshaped(x, [-1, x.shape[1] * width, x.shape[3]]), [0, 2, 1]) for x in joined]
    flat = reshaped(gradient, [-1, rows.blocks * width, filters])
    products = []
    for _, _, m in rows.taps:
        first, own = first_row(m, rows) * width, turned[m % rows.inputs]
        start, stop = max(first, 0), min(first + rows.blocks * width, own.shape[2])
        left = cut(own, range(own.shape[1]), range(start, stop))
        product = tf.matmul(left, cut(flat, range(start - first, stop - first), range(filters)))
        products.append(tf.reduce_sum(product, 0, keepdims=True))
    return products


def _under(phases: tf.Tensor, rows: Band, height: int) -> list[tuple[tf.Tensor, dict[int, int]]]:
    """Return the images whose rows lie under the rows of the joined gradient.

    Args:
        phases: `[batch, blocks of rows, rows per block, numbers]`.
        rows: The dependence of the input gradient's rows on the gradient's rows.
        height: The number of rows of the joined gradient.

    Returns:
        Images `[batch, rows, numbers]`, each with the first of its `height` rows under a kernel row, by kernel row.
    """
    found = []
    for o in sorted({o for o, _, _ in rows.taps}):
        phase = reshaped(part(phases, columns=slice(o, o + 1)), [-1, rows.blocks, phases.shape[3]])
        firsts = {j: first_row(m, rows) for own, j, m in rows.taps if own == o}
        above = max(0, *firsts.values())
        padded = lines_from(phase, -above, height + above - min(0, *firsts.values()))
        found.append((padded, {j: above - first for j, first in firsts.items()}))
    return found


def _total(under: list[tuple[tf.Tensor, dict[int, int]]], joined: tf.Tensor) -> tf.Tensor:
    """Return X^T J for the rows X under each kernel row, in order; if each example is one sum, X is transposed first.

    Args:
        under: The images, and the first of their rows for each kernel row.
        joined: J, `[batch, rows, blocks, numbers]`.
    """
    _, height, blocks, _ = joined.shape
    turn = height * blocks in ONE_SUM
    moved: dict[int, tf.Tensor] = {}
    for image, starts in under:
        width = image.shape[2] // blocks
        turned = tf.transpose(reshaped(image, [-1, image.shape[1] * blocks, width]), [0, 2, 1]) if turn else image
        for j, start in starts.items():
            if turn:
                moved[j] = cut(turned, range(width), range(start * blocks, (start + height) * blocks))
            else:
                lines = cut(image, range(start, start + height), range(image.shape[2]))
                moved[j] = reshaped(lines, [-1, height, blocks, width])
    parts = [moved[j] for j in sorted(moved)]
    if turn:
        return tf.reduce_sum(tf.matmul(concatenated(parts, 1), matrices(joined)), 0, keepdims=True)
    return _adjoint_product(concatenated(parts, -1), joined)


def _adjoint_product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return A^T B, `[1, columns of A, columns of B]`; long sums are split into parts, which reduces the error.

    Args:
        a: `[batch, rows, blocks, columns of A]`.
        b: `[batch, rows, blocks, columns of B]`.
    """
    product = tf.matmul(matrices(a), matrices(b), transpose_a=True)
    return product if product.shape[0] == 1 else tf.reduce_sum(product, 0, keepdims=True)
