"""Matrix products, and the gradients of adding a bias."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, lowers


@lowers("MatMul")
def matmul(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes C = A B at rank 3: of rank 2 the converter makes a FULLY_CONNECTED, which is slow with weights that change."""
    a, b = (tf.expand_dims(t, 0) for t in inputs)
    product = tf.matmul(a, b, transpose_a=op.get_attr("transpose_a"), transpose_b=op.get_attr("transpose_b"))
    return [tf.squeeze(product, 0)]


@lowers("BiasAddGrad")
def bias_add_grad(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes db = sum of dY over all axes but the last."""
    (gradient,) = inputs
    return [tf.reduce_sum(tf.reshape(gradient, [-1, gradient.shape[-1]]), 0)]
