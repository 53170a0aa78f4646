"""The columns of images side by side, as matrices for products.

XNNPACK reshapes without a copy only if the tensor and its new shape have one user each. So rows are cut and padded as
`[batch, rows, numbers]`, and joined columns have one shape, which all their products use.
"""

from math import prod

import tensorflow as tf

from odt_sim.export.lowering.banded_kernels import Band
from odt_sim.export.lowering.creation import reshaped
from odt_sim.export.lowering.registry import Memo
from odt_sim.export.lowering.windows import cut, padded_by

Bands = tuple[Band, Band]
"""The bands of rows and columns."""

PART = 256  # numbers in one sum
FEW = 4  # tensors that XNNPACK concatenates at once
ONE_SUM = range(PART, 4 * PART + 1)  # positions per example that fit one sum


def is_joined(x: tf.Tensor, bands: Bands, memo: Memo) -> bool:
    """Return whether an input's columns have been joined for these bands."""
    return ("joined", x.ref(), bands) in memo


def joined_columns(x: tf.Tensor, bands: Bands, memo: Memo) -> list[tf.Tensor]:
    """Return the input with neighbouring columns side by side: one tensor for each row of a block of rows.

    Each is `[batch, blocks of rows, blocks of columns, offsets * columns per block * channels]`, without the zeros above and
    below if the rows are bare.
    """
    key = ("joined", x.ref(), bands)
    if key not in memo:
        rows, columns = bands
        width = columns.input_blocks * columns.inputs
        before, height = (0, x.shape[1]) if rows.bare else (rows.before, rows.input_blocks * rows.inputs)
        image = padded_by(x, (before, columns.before), (height, width))
        phases = reshaped(image, [-1, height // rows.inputs, rows.inputs, width * x.shape[3]])
        every = range(height // rows.inputs)
        memo[key] = [_side_by_side(_columns(phases, i, columns, every)) for i in range(rows.inputs)]
    return list(memo[key])


def joined_pixels(x: tf.Tensor, bands: Bands) -> tf.Tensor:
    """Return the pixels under all kernel elements side by side, `[batch, rows, blocks of columns, numbers]`."""
    rows, columns = bands
    size = rows.input_blocks * rows.inputs, columns.input_blocks * columns.inputs
    image = padded_by(x, (rows.before, columns.before), size)
    phases = reshaped(image, [-1, rows.input_blocks, rows.inputs, size[1] * x.shape[3]])
    parts = []
    for _, _, m in sorted(rows.taps, key=lambda tap: tap[1]):
        start, phase = divmod(m, rows.inputs)
        parts += _columns(phases, phase, columns, range(start, start + rows.blocks))
    return _side_by_side(parts)


def _side_by_side(parts: list[tf.Tensor]) -> tf.Tensor:
    """Join images of equal height and width, in the shape of the matrices for a product."""
    _, height, width, _ = parts[0].shape
    matrix = concatenated([matrices(own) for own in parts], 2)
    return reshaped(matrix, [-1, height, width, matrix.shape[2]])


def _columns(phases: tf.Tensor, phase: int, columns: Band, taken: range) -> list[tf.Tensor]:
    """Return the columns at each offset in one row of some blocks of rows.

    Args:
        phases: `[batch, blocks of rows, rows per block, numbers]`.
        phase: The index of the row within a block.
        columns: The dependence of the output's columns on these columns.
        taken: The blocks of rows to use.

    Returns:
        Tensors `[batch, blocks of rows, blocks of columns, numbers]`.
    """
    _, height, rows, numbers = phases.shape
    step = numbers // columns.input_blocks
    one = range(phase, phase + 1)
    at_once = len(taken) == height and set(columns.used.values()) != {(0, columns.inputs)}
    parts = []
    for k, (first, last) in columns.used.items():
        used = range(first * step // columns.inputs, last * step // columns.inputs)
        if at_once:  # one slice for rows, columns and numbers
            own = cut(reshaped(phases, [-1, rows, columns.input_blocks, step]), one, range(k, k + columns.blocks), used)
        else:
            across = range(k * step, (k + columns.blocks) * step)
            lines = (
                cut(reshaped(phases, [-1, height, numbers]), taken, across)
                if rows == 1
                else cut(phases, taken, one, across)
            )
            places = range(len(taken)), range(columns.blocks)
            own = cut(reshaped(lines, [-1, len(taken), columns.blocks, step]), *places, used)
        parts.append(reshaped(own, [-1, len(taken), columns.blocks, len(used)]))
    return parts


def matrices(x: tf.Tensor) -> tf.Tensor:
    """Return `[batch, rows, blocks, numbers]` as a matrix per example, or several if it is long, or one for all if short.

    All products use this shape, because XNNPACK copies a tensor that its users need in several shapes.
    """
    _, rows, blocks, numbers = x.shape
    together = next((n for n in range(1, rows + 1) if rows % n == 0 and n * blocks >= PART), None)
    together = rows if rows * blocks in ONE_SUM else together
    return reshaped(x, [1, -1, numbers] if together is None else [-1, together * blocks, numbers])


def first_row(m: int, rows: Band) -> int:
    """Return the first joined row under a kernel row; negative if zeros precede it."""
    return m // rows.inputs - (rows.before if rows.bare else 0)


def rows_under(joined: tf.Tensor, m: int, rows: Band) -> tf.Tensor:
    """Return the input rows under a kernel row, one per output row, padded with zeros outside the image."""
    _, height, *sizes = joined.shape
    own = lines_from(reshaped(joined, [-1, height, prod(sizes)]), first_row(m, rows), rows.blocks)
    return reshaped(own, [-1, rows.blocks, *sizes])


def lines_from(x: tf.Tensor, first: int, height: int) -> tf.Tensor:
    """Return `height` rows of `[batch, rows, numbers]` from `first`; rows outside the tensor are zeros."""
    start, stop = max(first, 0), min(first + height, x.shape[1])
    own = cut(x, range(start, stop), range(x.shape[2]))
    around = [start - first, first + height - stop]
    return tf.pad(own, [[0, 0], around, [0, 0]]) if any(around) else own


def concatenated(parts: list[tf.Tensor], axis: int) -> tf.Tensor:
    """Concatenate tensors along an axis, a few at once, because XNNPACK supports no more."""
    if len(parts) == 1:
        return parts[0]
    groups = [tf.concat(parts[i : i + FEW], axis) for i in range(0, len(parts), FEW)] if len(parts) > FEW else parts
    return tf.concat(groups, axis)
