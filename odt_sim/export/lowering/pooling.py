"""The gradients of max and average pooling."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Refusal, lowers
from odt_sim.export.lowering.windows import Windows, element, padded, scattered, windows_of

LOWEST = tf.float32.min


def _windows(op: tf.Operation, image: tf.TensorShape) -> Windows:
    size = op.get_attr("ksize")
    if size[0] != 1 or size[3] != 1:
        raise Refusal("pools over height and width only; use MaxPooling2D or AveragePooling2D")
    return windows_of(op, image, (size[1], size[2]))


def step(x: tf.Tensor) -> tf.Tensor:
    """Returns 1 where `x` > 0 and 0 where it is 0, for `x` that is never negative."""
    return tf.sign(x)


@lowers("MaxPoolGrad")
def max_pool_grad(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes dX: dY where X is its window's first maximum (row by row), else 0; overlapping windows add up."""
    x, y, gradient = inputs
    windows = _windows(op, x.shape)
    image = padded(x, windows, LOWEST)
    left, parts = gradient, []
    for offset in windows.offsets:
        below = step(y - element(image, windows, offset)) * left  # what this element leaves to the later ones
        parts.append(left - below)
        left = below
    return [scattered(parts, windows)]


@lowers("AvgPoolGrad")
def avg_pool_grad(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes dX: the sum over its windows of dY / (the number of the window's elements inside the image)."""
    gradient = inputs[1]
    windows = _windows(op, op.outputs[0].shape)
    inside = padded(tf.ones([1, *windows.image, 1]), windows)
    number = tf.add_n([element(inside, windows, offset) for offset in windows.offsets])
    return [scattered([gradient / number] * len(windows.offsets), windows)]
