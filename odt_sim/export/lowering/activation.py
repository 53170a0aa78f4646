"""The gradients of activation functions, from the activation's output."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, lowers


@lowers("ReluGrad")
def relu_grad(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes dX = dY where Y > 0, else 0."""
    gradient, y = inputs
    positive = y if op.inputs[1].op.type == "Relu" else tf.nn.relu(y)
    return [gradient * tf.sign(positive)]


@lowers("TanhGrad")
def tanh_grad(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes dX = dY (1 - Y^2)."""
    y, gradient = inputs
    return [gradient * (1.0 - y * y)]


@lowers("SigmoidGrad")
def sigmoid_grad(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes dX = dY Y (1 - Y)."""
    y, gradient = inputs
    return [gradient * y * (1.0 - y)]
