"""Diagonals and bands of matrices whose size depends on the rows of the batch, such as the similarities of all pairs."""

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.registry import Refusal


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
