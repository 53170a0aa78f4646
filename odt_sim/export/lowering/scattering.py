"""Tensors with some rows replaced or added to, and products with sparse matrices."""

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.registry import Memo, Refusal, Value, computes, lowers


def _shape(x: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    return tf.shape(x, out_type=indices.dtype)


@computes("TensorScatterUpdate")
def tensor_scatter_update(x: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """Compute Y = X with the updates at their indices, of which none may repeat."""
    written = tf.scatter_nd(indices, tf.ones_like(updates), _shape(x, indices))
    return tf.where(tf.equal(written, 0), x, tf.scatter_nd(indices, updates, _shape(x, indices)))


@computes("TensorScatterAdd")
def tensor_scatter_add(x: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """Compute Y = X plus the updates at their indices."""
    return x + tf.scatter_nd(indices, updates, _shape(x, indices))


@computes("TensorScatterSub")
def tensor_scatter_sub(x: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """Compute Y = X minus the updates at their indices."""
    return x - tf.scatter_nd(indices, updates, _shape(x, indices))


@lowers("SparseTensorDenseMatMul")
def sparse_matmul(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute C = A B of a sparse A: row i of C sums A[i, j] B[j] over the entries of A."""
    indices, values, shape, b = inputs
    b = tf.transpose(b) if op.get_attr("adjoint_b") else b
    to, of = (1, 0) if op.get_attr("adjoint_a") else (0, 1)
    places = tf.cast(indices, tf.int32)
    rows = tf.expand_dims(values, 1) * tf.gather(b, places[:, of])
    return [tf.math.unsorted_segment_sum(rows, places[:, to], int(known(shape)[to]))]


@lowers("DynamicStitch")
def dynamic_stitch(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the slices of several tensors at the places that their indices give; of repeated places the last one."""
    count = len(inputs) // 2
    places = np.concatenate([known(t).reshape(-1) for t in inputs[:count]])
    shape = op.outputs[0].shape[1:]
    rows = tf.concat([reshaped(t, [-1, *shape]) for t in inputs[count:]], 0)
    last = {int(place): i for i, place in enumerate(places)}
    if sorted(last) != list(range(len(last))):
        raise Refusal("leaves places empty; give an index for each")
    return [tf.gather(rows, [last[place] for place in sorted(last)])]
