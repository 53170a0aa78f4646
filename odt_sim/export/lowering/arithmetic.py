"""Elementwise arithmetic that TFLite has no op of its own for, and gradients of such."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("Reciprocal", "Inv")
def reciprocal(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = 1 / X."""
    return [1.0 / inputs[0]]


@lowers("RsqrtGrad")
def rsqrt_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = -dY Y^3 / 2, of Y = 1 / sqrt(X)."""
    y, gradient = inputs
    return [gradient * (-0.5 * y * y * y)]


@lowers("SqrtGrad")
def sqrt_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = dY / (2 Y), of Y = sqrt(X)."""
    y, gradient = inputs
    return [0.5 * gradient / y]


@lowers("ReciprocalGrad", "InvGrad")
def reciprocal_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = -dY Y^2, of Y = 1 / X."""
    y, gradient = inputs
    return [-gradient * y * y]
