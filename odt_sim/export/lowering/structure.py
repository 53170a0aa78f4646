"""Ops that only pass tensors on, or tell what the static shapes say already."""

import tensorflow as tf

from odt_sim.export.lowering.folding import computed, known
from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("IdentityN", "StopGradient", "PreventGradient")
def identity(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = X for each input."""
    return inputs


@lowers("ShapeN")
def shape_n(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Returns the shape of each input."""
    return [tf.shape(t, out_type=op.outputs[0].dtype) for t in inputs]


@lowers("MatrixDiagV3", "MatrixSetDiagV3")
def matrix_diag(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Returns a matrix of constants with its diagonal, such as the unit matrix, as a constant."""
    (matrix,) = computed(op, [known(t) for t in inputs])
    return [tf.constant(matrix)]
