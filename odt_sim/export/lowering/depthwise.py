"""Depthwise convolution and its gradients.

TFLite's own kernel takes weights that change and is the fastest for the forward pass; the gradient of the input is such a
convolution again, of the gradient with the kernel turned round.
"""

import tensorflow as tf

from odt_sim.export.lowering.reduction import sum_over
from odt_sim.export.lowering.registry import Memo, Value, lowers
from odt_sim.export.lowering.windows import Windows, dilated, element, padded, windows_of


def _windows(op: tf.Operation, image: tf.TensorShape, kernel: tf.TensorShape) -> Windows:
    return windows_of(op, image, (int(kernel[0]), int(kernel[1])))


@lowers("DepthwiseConv2dNative")
def depthwise_conv2d(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y[..., c m + k] = the sum over the kernel's places p of X[p][..., c] W[p, c, k], for m filters a channel."""
    x, kernel = inputs
    _windows(op, x.shape, kernel.shape)  # refuses what has no kernel
    settings = {name: op.get_attr(name) for name in ("strides", "padding", "dilations")}
    return [tf.raw_ops.DepthwiseConv2dNative(input=x, filter=kernel, **settings)]


@lowers("DepthwiseConv2dNativeBackpropFilter")
def depthwise_backprop_filter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dW[p, c, k]: the sum over the windows of X[p][..., c] dY[..., c m + k]."""
    x, _, gradient = inputs
    kernel = op.outputs[0].shape
    windows = _windows(op, x.shape, kernel)
    image = padded(_repeated(x, kernel[3]), windows)
    sums = [sum_over(element(image, windows, offset) * gradient, {0, 1, 2}) for offset in windows.offsets]
    return [tf.reshape(tf.concat(sums, 0), kernel)]


def _repeated(x: tf.Tensor, times: int) -> tf.Tensor:
    """Returns an image in which every channel stands `times` times."""
    if times == 1:
        return x
    _, height, width, channels = x.shape
    flat = tf.reshape(x, [-1, channels, 1])
    return tf.reshape(tf.concat([flat] * times, 2), [-1, height, width, channels * times])


@lowers("DepthwiseConv2dNativeBackpropInput")
def depthwise_backprop_input(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: the convolution of dY, with zeros between where windows lie apart, with the kernel turned round."""
    _, kernel, gradient = inputs
    image = op.outputs[0].shape
    height, width, channels, times = kernel.shape
    windows = _windows(op, image, kernel.shape)
    spread = dilated(gradient, *windows.stride)
    reach = [(size - 1) * step for size, step in zip(windows.size, windows.dilation, strict=True)]
    before = [r - b for r, b in zip(reach, windows.before, strict=True)]
    after = [n + r - b - have for n, r, b, have in zip(image[1:3], reach, before, spread.shape[1:3], strict=True)]
    spread = tf.pad(spread, [[0, 0], [before[0], after[0]], [before[1], after[1]], [0, 0]])
    turned = tf.reverse(tf.reshape(kernel, [height, width, channels * times, 1]), [0, 1])
    dx = tf.nn.depthwise_conv2d(spread, turned, [1, 1, 1, 1], "VALID", dilations=windows.dilation)
    if times == 1:
        return [dx]
    return [tf.reshape(tf.reduce_sum(tf.reshape(dx, [-1, channels, times]), -1), [-1, *image[1:]])]
