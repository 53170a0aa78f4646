"""Cholesky factors and triangular equations, unrolled: for the small matrices of probabilistic layers."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers

LARGEST = 32  # rows; the number of ops grows with their number


def _size(matrix: tf.Tensor) -> int:
    size = matrix.shape[-1]
    if size is None or size > LARGEST:
        raise Refusal(f"supports up to {LARGEST} rows, found {size}; use a smaller or a diagonal matrix")
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
