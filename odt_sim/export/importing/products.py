"""Matrix products."""

from math import prod

import tensorflow as tf

from odt_sim.export.importing.registry import Operator, Value, activated, imports
from odt_sim.export.lowering.registry import Refusal


@imports("FULLY_CONNECTED")
def fully_connected(operator: Operator) -> list[Value]:
    """Import Y = X W^T + b, with X reshaped to rows of as many values as W has columns."""
    x, weights, *bias = operator.inputs
    if operator.options.weightsFormat != 0 or weights.dtype != tf.float32:
        raise Refusal(f"has {weights.dtype.name} weights, or shuffled ones; expected float32")
    outputs, columns = weights.shape
    leading = [-1 if size is None else size for size in x.shape[:-1]] if x.shape.rank is not None else [-1]
    flat = x if x.shape.rank == 2 else tf.reshape(x, [-1, columns])
    product = tf.matmul(flat, weights, transpose_b=True)
    if bias and bias[0] is not None:
        product = tf.nn.bias_add(product, bias[0])
    if operator.options.keepNumDims and x.shape.rank != 2:
        if leading.count(-1) > 1 or prod(leading) == 0:
            raise Refusal("keeps several axes of variable size; use fixed sizes")
        product = tf.reshape(product, [*leading, outputs])
    return [activated(operator, product)]


@imports("BATCH_MATMUL")
def batch_matmul(operator: Operator) -> list[Value]:
    """Import a matrix product over the last two axes."""
    x, y = operator.inputs
    transposed = {"transpose_a": bool(operator.options.adjX), "transpose_b": bool(operator.options.adjY)}
    return [tf.matmul(x, y, **transposed)]
