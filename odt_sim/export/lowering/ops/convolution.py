"""Conv2D and its gradients as matrix products (see `convolution_products`).

Joining the columns of an image with one channel would copy single numbers; instead, the pixels under each kernel element
are stacked on the first axis (mnist_cnn: 0.84 of the time).
"""

import tensorflow as tf

from odt_sim.export.lowering.layout.banded_products import convolved, filter_gradient
from odt_sim.export.lowering.layout.bands import Bands, backward, forward
from odt_sim.export.lowering.layout.late import late
from odt_sim.export.lowering.layout.windows import Windows, elements, kernel_windows, padded
from odt_sim.export.lowering.ops.creation import reshaped
from odt_sim.export.lowering.ops.depthwise import ShiftedGradients, depthwise_filter_gradient, depthwise_input_gradient
from odt_sim.export.lowering.ops.pooling import (
    BeforePooling,
    Unpooled,
    following_pooling,
    pooling_windows,
)
from odt_sim.export.lowering.registry import Memo, Value, lowers


def _forward(windows: Windows) -> Bands:
    return forward(windows, 0), forward(windows, 1)


@lowers("Conv2D")
def conv2d(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the sum over kernel elements p of X[p] W[p], where X[p] lies under element p."""
    x, kernel = inputs
    windows = kernel_windows(op, x.shape, kernel.shape)
    groups = x.shape[3] // kernel.shape[2]
    if _is_depthwise(op, kernel.shape, groups):
        settings = {name: op.get_attr(name) for name in ("strides", "padding", "dilations")}
        return [tf.raw_ops.DepthwiseConv2dNative(input=x, filter=_by_channel(kernel, groups), **settings)]
    if groups > 1:
        pairs = zip(_split(x, groups, memo), tf.split(kernel, groups, -1), strict=True)
        return [tf.concat([product(own, weights, windows, memo) for own, weights in pairs], -1)]
    pooling = following_pooling(op)
    if pooling is None:
        return [product(x, kernel, windows, memo)]
    windows = _used(windows, pooling_windows(pooling, op.outputs[0].shape))
    return [BeforePooling(Unpooled(product(x, kernel, windows, memo), pooling))]


def _is_depthwise(op: tf.Operation, kernel: tf.TensorShape, groups: int) -> bool:
    """Return whether each group is one channel, as in ConvNeXt, and TFLite's depthwise convolution has the op's settings."""
    down, right = op.get_attr("strides")[1:3]
    return groups > 1 and kernel[2] == 1 and down == right and op.get_attr("padding") != b"EXPLICIT"


def _by_channel(kernel: tf.Tensor, groups: int) -> tf.Tensor:
    """Return a grouped kernel of one channel per group as `[height, width, channels, filters per channel]`."""
    height, width, _, filters = kernel.shape
    return reshaped(kernel, [height, width, groups, filters // groups])


def _split(x: tf.Tensor, groups: int, memo: Memo) -> list[tf.Tensor]:
    """Return an image's channels in `groups` parts, memoized."""
    key = ("split", x.ref(), groups)
    if key not in memo:
        memo[key] = tf.split(x, groups, -1)
    return list(memo[key])


def product(x: tf.Tensor, kernel: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    """Return the convolution of images with a kernel."""
    filters = kernel.shape[3]
    if _grey(x, windows):
        flat = tf.matmul(_stacked(x, windows, memo), reshaped(kernel, [1, -1, filters]), transpose_a=True)
        return reshaped(flat, [-1, *windows.count, filters])
    return convolved(x, kernel, _forward(windows), memo)


def _grey(x: tf.Tensor, windows: Windows) -> bool:
    return x.shape[3] == 1 and windows.stride == (1, 1)


def _stacked(x: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    """Return the pixels under each kernel element, stacked: `[1, height * width, batch * rows * columns]`."""
    key = ("stacked", x.ref(), windows)
    if key not in memo:
        image = padded(x, windows)
        memo[key] = tf.concat([reshaped(x, [1, 1, -1]) for x in elements(image, windows)], 1)
    return memo[key]


def _used(windows: Windows, pools: Windows) -> Windows:
    """Return the windows of a convolution without those that the following pooling ignores."""
    if not pools.tiles:
        return windows
    return windows.first(pools.count[0] * pools.size[0], pools.count[1] * pools.size[1])


@lowers("Conv2DBackpropFilter")
def conv2d_backprop_filter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dW[p] = X[p]^T dY for the kernel elements p."""
    x, _, gradient = inputs
    kernel = op.outputs[0].shape
    windows = kernel_windows(op, x.shape, kernel).first(*gradient.shape[1:3])
    groups = x.shape[3] // kernel[2]
    if groups == 1:
        return [kernel_gradient(x, gradient, windows, memo)]
    if _is_depthwise(op, kernel, groups):
        shape = tf.TensorShape([kernel[0], kernel[1], groups, kernel[3] // groups])
        return [reshaped(depthwise_filter_gradient(x, gradient, shape, windows, memo), kernel)]
    pairs = zip(_split(x, groups, memo), _split(gradient, groups, memo), strict=True)
    return [tf.concat([kernel_gradient(own, of_own, windows, memo) for own, of_own in pairs], -1)]


def kernel_gradient(x: tf.Tensor, gradient: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    """Return the gradient of a convolution with respect to its kernel."""
    filters = gradient.shape[3]
    if _grey(x, windows):
        flat = tf.matmul(_stacked(x, windows, memo), reshaped(gradient, [1, -1, filters]))
        return reshaped(flat, [*windows.size, 1, filters])
    # Join late columns again: columns of the forward pass, or a reshaped copy, would occupy memory since then.
    return filter_gradient(late(x, gradient, memo), gradient, _forward(windows), memo)


@lowers("Conv2DBackpropInput")
def conv2d_backprop_input(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX: for each pixel, the sum of dY W[p]^T over the kernel elements p that covered it."""
    _, kernel, gradient = inputs
    image = op.outputs[0].shape
    windows = kernel_windows(op, image, kernel.shape).first(*gradient.shape[1:3])
    groups = image[3] // kernel.shape[2]
    if groups == 1:
        return [image_gradient(kernel, gradient, windows, memo)]
    if _is_depthwise(op, kernel.shape, groups):
        return [depthwise_input_gradient(_by_channel(kernel, groups), ShiftedGradients(gradient, windows, memo))]
    pairs = zip(tf.split(kernel, groups, -1), _split(gradient, groups, memo), strict=True)
    return [tf.concat([image_gradient(weights, own, windows, memo) for weights, own in pairs], -1)]


def image_gradient(kernel: tf.Tensor, gradient: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    """Return the gradient of a convolution with respect to its images."""
    height, width = windows.image
    bands = backward(windows, 0), backward(windows, 1)
    dx = convolved(gradient, kernel, bands, memo, adjoint=True)
    return dx if tuple(dx.shape[1:3]) == (height, width) else dx[:, :height, :width]
