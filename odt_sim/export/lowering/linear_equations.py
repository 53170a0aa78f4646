"""Matrix inverses and solutions of small linear equations, as for image transforms."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers

LARGEST = 16  # unknowns; the number of ops grows with their number


@lowers("MatrixInverse", "MatrixSolve")
def solve(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute X with A X = B, or A^T X = B (MatrixInverse: B = I), by Gauss-Jordan elimination with row exchange."""
    matrix = inputs[0]
    size = matrix.shape[-1]
    if size is None or size > LARGEST:
        raise Refusal(f"supports up to {LARGEST} unknowns, found {size}; use fewer")
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
