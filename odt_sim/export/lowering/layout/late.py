"""Values that are computed in the backward pass instead of the forward pass.

LiteRT runs an op as soon as its inputs exist, and keeps the result until it is used. An op of the backward pass that needs
only activations, such as a mask, would run in the forward pass and occupy memory for the whole step. Adding an exact zero
computed from a gradient delays the op (mobilenet: 0.78 of the time, 0.4 of the memory). For small gradients, computing the
zero costs more time than the memory is worth.
"""

import tensorflow as tf

from odt_sim.export.lowering.ops.creation import copied, integers, reshaped
from odt_sim.export.lowering.registry import Memo

RELUS = ("Relu", "Relu6")
LAYOUTS = ("Reshape", "Pad", "PadV2")

SMALL = 1 << 13
"""The maximum number of elements of a gradient that does not delay ops."""


def zero_after(gradient: tf.Tensor) -> tf.Tensor | float:
    """Return a 0, with all sizes 1, that exists only after a gradient: min(|g|, 0) of its first number.

    Unlike 0 g, it is exact for an infinite g, and the converter does not fold it. For a small gradient, it is a constant.
    """
    if _is_small(gradient):
        return 0.0
    rank = len(gradient.shape)
    first = tf.slice(gradient, integers([0] * rank), integers([1] * rank))
    return tf.minimum(tf.abs(first), 0.0)


def _is_small(gradient: tf.Tensor) -> bool:
    return bool(gradient.shape.is_fully_defined() and gradient.shape.num_elements() <= SMALL)


def late(x: tf.Tensor, gradient: tf.Tensor, memo: Memo) -> tf.Tensor:
    """Return `x` as a value that exists only after a gradient with as many axes."""
    again = recomputed(x, gradient, memo)
    return again if again is not x or _is_small(gradient) else x + zero_after(gradient)


def recomputed(x: tf.Tensor, gradient: tf.Tensor, memo: Memo) -> tf.Tensor:
    """Return `x` recomputed after a gradient if it is the ReLU of a normalization, possibly padded; else `x` itself.

    The ReLU is relu(v a + b) with a factor a per channel. The normalization's gradient keeps v, so the ReLU need not stay.
    """
    key = ("recomputed", x.ref())
    if key not in memo:
        memo[key] = _recomputed(x, gradient, memo)
    return memo[key]


def _recomputed(x: tf.Tensor, gradient: tf.Tensor, memo: Memo) -> tf.Tensor:
    op = x.op
    if op.type in LAYOUTS:
        source = recomputed(op.inputs[0], gradient, memo)
        return x if source is op.inputs[0] else copied(op, [source, *op.inputs[1:]])[0]
    total = op.inputs[0].op if op.type in RELUS else None
    if total is None or total.type != "AddV2" or total.inputs[0].op.type != "Mul":
        return x
    product, offset = total.inputs
    value, factor = product.op.inputs
    if value.shape != product.shape or factor.shape.num_elements() != x.shape[-1] or _is_small(gradient):
        return x
    zero = reshaped(zero_after(gradient), [1] * len(factor.shape))
    again = copied(product.op, [value, factor + zero])
    return copied(op, copied(total, [*again, offset]))[0]
