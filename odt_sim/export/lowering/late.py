"""Values that the backward pass computes, not the forward pass.

LiteRT runs an op as soon as its inputs exist, and holds the result until it is used. An op of the backward pass that needs
activations only, such as a mask, would run in the forward pass and keep its memory for the whole step. An exact zero computed
from a gradient delays it.
"""

import tensorflow as tf


def zero_after(gradient: tf.Tensor) -> tf.Tensor:
    """Return 0, with all sizes 1, that exists only after a gradient: min(|g|, 0) of its first number.

    Unlike 0 g it is exact for an infinite g, and the converter does not fold it.
    """
    rank = len(gradient.shape)
    first = tf.slice(gradient, [0] * rank, [1] * rank) if rank else gradient
    return tf.minimum(tf.abs(first), 0.0)


def late(x: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Return `x` as a value that exists only after a gradient with as many axes."""
    return x + zero_after(gradient)
