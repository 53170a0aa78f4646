"""Elementwise ops, reductions and activations."""

from collections.abc import Callable

import tensorflow as tf

from odt_sim.export.importing.registry import IMPORTS, Operator, Value, activated, imports

ELEMENTWISE: dict[str, Callable[..., tf.Tensor]] = {
    "ABS": tf.abs,
    "ADD": tf.add,
    "ADD_N": lambda *values: tf.add_n(list(values)),
    "BITWISE_XOR": tf.bitwise.bitwise_xor,
    "CEIL": tf.math.ceil,
    "COS": tf.cos,
    "ELU": tf.nn.elu,
    "EQUAL": lambda x, y: tf.raw_ops.Equal(x=x, y=y),
    "EXP": tf.exp,
    "FLOOR": tf.floor,
    "FLOOR_DIV": lambda x, y: tf.raw_ops.FloorDiv(x=x, y=y),
    "FLOOR_MOD": lambda x, y: tf.raw_ops.FloorMod(x=x, y=y),
    "GREATER": tf.greater,
    "GREATER_EQUAL": tf.greater_equal,
    "HARD_SWISH": lambda x: x * tf.nn.relu6(x + 3.0) / 6.0,
    "LESS": tf.less,
    "LESS_EQUAL": tf.less_equal,
    "LOG": tf.math.log,
    "LOGICAL_AND": tf.logical_and,
    "LOGICAL_NOT": tf.logical_not,
    "LOGICAL_OR": tf.logical_or,
    "LOGISTIC": tf.sigmoid,
    "LOG_SOFTMAX": lambda x: tf.raw_ops.LogSoftmax(logits=x),
    "MAXIMUM": tf.maximum,
    "MINIMUM": tf.minimum,
    "MUL": tf.multiply,
    "NEG": tf.negative,
    "NOT_EQUAL": lambda x, y: tf.raw_ops.NotEqual(x=x, y=y),
    "POW": tf.pow,
    "PRELU": lambda x, slope: tf.nn.relu(x) - slope * tf.nn.relu(-x),
    "RELU": tf.nn.relu,
    "RELU6": tf.nn.relu6,
    "RELU_N1_TO_1": lambda x: tf.maximum(tf.minimum(x, 1.0), -1.0),
    "RELU_0_TO_1": lambda x: tf.maximum(tf.minimum(x, 1.0), 0.0),
    "ROUND": tf.round,
    "RSQRT": tf.math.rsqrt,
    "SELECT": lambda condition, x, y: tf.raw_ops.Select(condition=condition, x=x, y=y),
    "SELECT_V2": lambda condition, x, y: tf.raw_ops.SelectV2(condition=condition, t=x, e=y),
    "SIGN": tf.sign,
    "SIN": tf.sin,
    "SQRT": tf.sqrt,
    "SQUARE": tf.square,
    "SQUARED_DIFFERENCE": tf.math.squared_difference,
    "SUB": tf.subtract,
    "TANH": tf.tanh,
    "ZEROS_LIKE": lambda x: tf.raw_ops.ZerosLike(x=x),
}
"""Ops without options, except for a fused activation."""

REDUCTIONS: dict[str, Callable[..., tf.Tensor]] = {
    "MEAN": tf.reduce_mean,
    "REDUCE_ALL": tf.reduce_all,
    "REDUCE_ANY": tf.reduce_any,
    "REDUCE_MAX": tf.reduce_max,
    "REDUCE_MIN": tf.reduce_min,
    "REDUCE_PROD": tf.reduce_prod,
    "SUM": tf.reduce_sum,
}


@imports(*ELEMENTWISE)
def elementwise(operator: Operator) -> list[Value]:
    """Import an elementwise op."""
    return [activated(operator, ELEMENTWISE[operator.kind](*operator.inputs))]


@imports("DIV")
def divide(operator: Operator) -> list[Value]:
    """Import X / Y; the quotient of integers is truncated."""
    x, y = operator.inputs
    quotient = tf.raw_ops.TruncateDiv(x=x, y=y) if x.dtype.is_integer else tf.raw_ops.RealDiv(x=x, y=y)
    return [activated(operator, quotient)]


@imports(*REDUCTIONS)
def reduction(operator: Operator) -> list[Value]:
    """Import a reduction over axes."""
    x, axes = operator.inputs
    return [REDUCTIONS[operator.kind](x, axes, keepdims=bool(operator.options.keepDims))]


IMPORTS.update(
    {
        "ARG_MAX": lambda op: [tf.argmax(*op.inputs, output_type=op.dtypes[0])],
        "ARG_MIN": lambda op: [tf.argmin(*op.inputs, output_type=op.dtypes[0])],
        "CAST": lambda op: [tf.cast(op.inputs[0], op.dtypes[0])],
        "CUMSUM": lambda op: [tf.cumsum(*op.inputs, exclusive=op.options.exclusive, reverse=op.options.reverse)],
        "SOFTMAX": lambda op: [
            tf.raw_ops.Softmax(logits=op.inputs[0] if op.options.beta == 1 else op.options.beta * op.inputs[0])
        ],
        "LEAKY_RELU": lambda op: [tf.raw_ops.LeakyRelu(features=op.inputs[0], alpha=op.options.alpha)],
        "GELU": lambda op: [tf.nn.gelu(op.inputs[0], approximate=op.options.approximate)],
        # X / max(|X|, 1e-6)
        "L2_NORMALIZATION": lambda op: [activated(op, tf.math.l2_normalize(op.inputs[0], axis=-1, epsilon=1e-12))],
    }
)
