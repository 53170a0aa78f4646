"""The gradients of activation functions, from the activation's output."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("TanhGrad")
def tanh_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = dY (1 - Y^2)."""
    y, gradient = inputs
    return [gradient * (1.0 - y * y)]


@lowers("SigmoidGrad")
def sigmoid_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = dY Y (1 - Y)."""
    y, gradient = inputs
    return [gradient * y * (1.0 - y)]
