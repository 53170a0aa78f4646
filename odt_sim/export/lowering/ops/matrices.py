"""Small linear equations, Cholesky factors, and diagonals and bands of matrices of open size."""

import tensorflow as tf

from odt_sim.export.lowering.ops.creation import known
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers

MOST_UNKNOWNS = 16  # unknowns; the number of ops grows with their number


@lowers("MatrixInverse", "MatrixSolve")
def solve(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute X with A X = B, or A^T X = B (MatrixInverse: B = I), by Gauss-Jordan elimination with row exchange."""
    matrix = inputs[0]
    size = matrix.shape[-1]
    if size is None or size > MOST_UNKNOWNS:
        raise Refusal(f"supports up to {MOST_UNKNOWNS} unknowns, found {size}; use fewer")
    matrix = tf.linalg.matrix_transpose(matrix) if op.get_attr("adjoint") else matrix
    right = inputs[1] if len(inputs) > 1 else tf.eye(size) + tf.zeros_like(matrix)
    joined = tf.concat([matrix, right], -1)
    for column in range(size):
        joined = _eliminated(joined, column, size)
    return [joined[..., size:]]


def _eliminated(rows: tf.Tensor, column: int, size: int) -> tf.Tensor:
    """Exchange a row with the row that has the largest pivot, and eliminate the column from all other rows."""
    candidates = tf.abs(rows[..., column]) - tf.constant([1e30 if i < column else 0.0 for i in range(size)])
    chosen = tf.one_hot(tf.argmax(candidates, -1, tf.int32), size)[..., tf.newaxis]
    own = tf.one_hot(column, size)[:, tf.newaxis]
    pivot_row = tf.reduce_sum(rows * chosen, -2, keepdims=True)
    exchanged = rows + (own - chosen) * (pivot_row - rows[..., column : column + 1, :])
    pivot_row = pivot_row / pivot_row[..., column : column + 1]
    rest = exchanged - exchanged[..., column : column + 1] * pivot_row
    return rest * (1.0 - own) + own * pivot_row


MOST_ROWS = 32  # rows; the number of ops grows with their number


def _size(matrix: tf.Tensor) -> int:
    size = matrix.shape[-1]
    if size is None or size > MOST_ROWS:
        raise Refusal(f"supports up to {MOST_ROWS} rows, found {size}; use a smaller or a diagonal matrix")
    return int(size)


@lowers("Cholesky")
def cholesky(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute the lower triangular L with L L^T = A, column by column from the remainder of A."""
    (rest,) = inputs
    columns = []
    for j in range(_size(rest)):
        below = tf.constant([0.0] * j + [1.0] * (rest.shape[-1] - j))
        column = rest[..., j] * below * tf.math.rsqrt(rest[..., j, j : j + 1])
        rest = rest - column[..., :, tf.newaxis] * column[..., tf.newaxis, :]
        columns.append(column)
    return [tf.stack(columns, -1)]


@lowers("MatrixTriangularSolve")
def triangular_solve(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute X with A X = B, or A^T X = B, by substitution: x[i] = (b[i] - the sum of a[i, j] x[j]) / a[i, i]."""
    matrix, right = inputs
    lower = op.get_attr("lower") != op.get_attr("adjoint")
    matrix = tf.linalg.matrix_transpose(matrix) if op.get_attr("adjoint") else matrix
    order = list(range(_size(matrix))) if lower else list(range(_size(matrix)))[::-1]
    found: dict[int, tf.Tensor] = {}
    for i in order:
        row = right[..., i, :]
        for j, own in found.items():
            row = row - matrix[..., i, j : j + 1] * own
        found[i] = row / matrix[..., i, i : i + 1]
    return [tf.stack([found[i] for i in sorted(found)], -2)]


def offset_of(k: tf.Tensor) -> tf.Tensor:
    """Return the number of the only diagonal that an op reads or writes, `[]` int32; 0 is the main diagonal."""
    if k.shape.num_elements() != 1 and len({*known(k).reshape(-1)}) > 1:
        raise Refusal("has several diagonals of a matrix whose size depends on the rows; take one at a time")
    return tf.reshape(k, [-1])[0]


def diagonal_of(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """Return a diagonal of matrices, `[..., min(rows, columns)]` for the main one."""
    shape, row, column = tf.shape(x), tf.maximum(-k, 0), tf.maximum(k, 0)
    steps = tf.range(tf.minimum(shape[-2] - row, shape[-1] - column))
    flat = tf.reshape(x, tf.concat([shape[:-2], [-1]], 0))
    return tf.gather(flat, (row + steps) * shape[-1] + column + steps, axis=-1)


def with_diagonal(x: tf.Tensor, diagonal: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """Return matrices with a replaced diagonal."""
    shape = tf.shape(x)
    return _on_diagonal(shape[-2], shape[-1], diagonal, k, x)


def matrix_of(diagonal: tf.Tensor, k: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return square matrices with a diagonal, filled with a number."""
    size = tf.shape(diagonal)[-1] + tf.abs(k)
    return _on_diagonal(size, size, diagonal, k, number)


def band_of(x: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
    """Return matrices with 0 outside of some diagonals; a negative number keeps all of that side."""
    shape = tf.shape(x)
    rows, columns = tf.range(shape[-2])[:, tf.newaxis], tf.range(shape[-1])
    below = tf.logical_or(lower < 0, rows - columns <= lower)
    above = tf.logical_or(upper < 0, columns - rows <= upper)
    return tf.where(tf.logical_and(below, above), x, tf.zeros([], x.dtype))


def _on_diagonal(height: tf.Tensor, width: tf.Tensor, diagonal: tf.Tensor, k: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Return matrices with a diagonal, and `other` elsewhere."""
    rows, columns = tf.range(height)[:, tf.newaxis], tf.range(width)
    positions = tf.minimum(tf.minimum(rows, columns), tf.shape(diagonal)[-1] - 1)
    return tf.where(tf.equal(columns - rows, k), tf.gather(diagonal, positions, axis=-1), other)
