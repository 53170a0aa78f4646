"""Conv2D and its gradients, as matrix products (see `products`).

A grey image has one channel: to lay columns of it side by side would be copies of single numbers, so the elements under each
place of the kernel are stacked on the first axis instead.
"""

import tensorflow as tf

from odt_sim.export.lowering.banded_kernels import backward, forward
from odt_sim.export.lowering.convolution_products import SPARE, Bands, convolved, filter_gradient
from odt_sim.export.lowering.pooling import BeforePooling, following_pooling, pooling_windows
from odt_sim.export.lowering.registry import Memo, Value, lowers
from odt_sim.export.lowering.windows import Windows, elements, padded, windows_of

LANES = 32  # result columns that XNNPACK computes at once
BLOCKS = (4, 2)


def _windows(op: tf.Operation, image: tf.TensorShape, kernel: tf.TensorShape) -> Windows:
    return windows_of(op, image, (int(kernel[0]), int(kernel[1])))


def _forward(windows: Windows, filters: int) -> Bands:
    """Returns the bands of the output; as many columns make a block as fill the lanes."""
    fitting = (n for n in BLOCKS if n * filters <= LANES and windows.count[1] % n == 0)
    return forward(windows, 0, 1), forward(windows, 1, next(fitting, 1) if windows.size[1] > 1 else 1)


def _backward(windows: Windows, channels: int) -> Bands:
    """Returns the bands of the input's gradient, whose last block may reach a little over the image's edge."""
    step, width = windows.stride[1], windows.image[1]
    fitting = (n for n in BLOCKS if n * step * channels <= LANES and -width % (n * step) * SPARE <= width)
    return backward(windows, 0, 1), backward(windows, 1, next(fitting, 1) if windows.size[1] > 1 else 1)


@lowers("Conv2D")
def conv2d(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = the sum over the kernel's places p of X[p] W[p], where X[p] is what lies under place p."""
    x, kernel = inputs
    windows = _windows(op, x.shape, kernel.shape)
    groups = x.shape[3] // kernel.shape[2]
    if groups > 1:
        pairs = zip(_split(x, groups, memo), tf.split(kernel, groups, -1), strict=True)
        return [tf.concat([_convolved(own, weights, windows, memo) for own, weights in pairs], -1)]
    pooling = following_pooling(op)
    if pooling is None:
        return [_convolved(x, kernel, windows, memo)]
    windows = _used(windows, pooling, op.outputs[0].shape)
    return [BeforePooling(_convolved(x, kernel, windows, memo), pooling)]


def _split(x: tf.Tensor, groups: int, memo: Memo) -> list[tf.Tensor]:
    """Returns an image's channels in `groups` parts, the same tensors whenever asked."""
    key = ("split", x.ref(), groups)
    if key not in memo:
        memo[key] = tf.split(x, groups, -1)
    return list(memo[key])


def _convolved(x: tf.Tensor, kernel: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    filters = kernel.shape[3]
    if _grey(x, windows):
        flat = tf.matmul(_stacked(x, windows, memo), tf.reshape(kernel, [1, -1, filters]), transpose_a=True)
        return tf.reshape(flat, [-1, *windows.count, filters])
    return convolved(x, kernel, _forward(windows, filters), memo)


def _grey(x: tf.Tensor, windows: Windows) -> bool:
    return x.shape[3] == 1 and windows.stride == (1, 1)


def _stacked(x: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    """Returns what lies under each place of the kernel, stacked: `[1, height * width, batch * rows * columns]`."""
    key = ("stacked", x.ref(), windows)
    if key not in memo:
        image = padded(x, windows)
        memo[key] = tf.concat([tf.reshape(x, [1, 1, -1]) for x in elements(image, windows)], 1)
    return memo[key]


def _used(windows: Windows, pooling: tf.Operation, image: tf.TensorShape) -> Windows:
    """Returns the windows of a convolution without those whose output no window of the pooling covers."""
    pools = pooling_windows(pooling, image)
    if not pools.tiles:
        return windows
    return windows.first(pools.count[0] * pools.size[0], pools.count[1] * pools.size[1])


@lowers("Conv2DBackpropFilter")
def conv2d_backprop_filter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dW[p] = X[p]^T dY for the kernel's places p."""
    x, _, gradient = inputs
    kernel = op.outputs[0].shape
    windows = _windows(op, x.shape, kernel).first(*gradient.shape[1:3])
    groups = x.shape[3] // kernel[2]
    if groups == 1:
        return [_filter_gradient(x, gradient, windows, memo)]
    pairs = zip(_split(x, groups, memo), _split(gradient, groups, memo), strict=True)
    return [tf.concat([_filter_gradient(own, of_own, windows, memo) for own, of_own in pairs], -1)]


def _filter_gradient(x: tf.Tensor, gradient: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    filters = gradient.shape[3]
    if _grey(x, windows):
        flat = tf.matmul(_stacked(x, windows, memo), tf.reshape(gradient, [1, -1, filters]))
        return tf.reshape(flat, [*windows.size, 1, filters])
    return filter_gradient(x, gradient, _forward(windows, filters), memo)


@lowers("Conv2DBackpropInput")
def conv2d_backprop_input(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: at each place of the image the sum of dY W[p]^T over the places p that lay on it."""
    _, kernel, gradient = inputs
    image = op.outputs[0].shape
    windows = _windows(op, image, kernel.shape).first(*gradient.shape[1:3])
    groups = image[3] // kernel.shape[2]
    if groups == 1:
        return [_input_gradient(kernel, gradient, windows, memo)]
    pairs = zip(tf.split(kernel, groups, -1), _split(gradient, groups, memo), strict=True)
    return [tf.concat([_input_gradient(weights, own, windows, memo) for weights, own in pairs], -1)]


def _input_gradient(kernel: tf.Tensor, gradient: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    height, width = windows.image
    dx = convolved(gradient, kernel, _backward(windows, kernel.shape[2]), memo, adjoint=True)
    return dx if tuple(dx.shape[1:3]) == (height, width) else dx[:, :height, :width]
