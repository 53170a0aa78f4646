"""Matrix products."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("MatMul")
def matmul(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes C = A B at rank 3: of rank 2 the converter makes a FULLY_CONNECTED, slow with weights that change."""
    a, b = (tf.expand_dims(t, 0) for t in inputs)
    product = tf.matmul(a, b, transpose_a=op.get_attr("transpose_a"), transpose_b=op.get_attr("transpose_b"))
    return [tf.squeeze(product, 0)]


@lowers("BatchMatMulV2")
def batch_matmul(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes C[i] = A[i] B[i] for the leading axes i, which broadcast."""
    a, b = inputs
    return [tf.matmul(a, b, adjoint_a=op.get_attr("adj_x"), adjoint_b=op.get_attr("adj_y"))]
