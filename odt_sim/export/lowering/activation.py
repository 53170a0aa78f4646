"""The gradients of activation functions, from the activation's output."""

import tensorflow as tf

from odt_sim.export.lowering.max_pooling import positive
from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("Relu6Grad")
def relu6_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: dY where 0 < Y < 6, else 0."""
    gradient, y = inputs
    return [gradient * positive(tf.nn.relu(y)) * positive(tf.nn.relu(6.0 - y))]


@lowers("LeakyReluGrad")
def leaky_relu_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: dY where X > 0, else alpha dY."""
    gradient, x = inputs
    alpha = op.get_attr("alpha")
    return [gradient * (alpha + (1.0 - alpha) * positive(tf.nn.relu(x)))]


@lowers("EluGrad")
def elu_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: dY where Y >= 0, else dY (Y + 1)."""
    gradient, y = inputs
    return [gradient * (1.0 + tf.minimum(y, 0.0))]


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
