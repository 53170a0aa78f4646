"""Conv2D and its gradients as matrix products over im2col columns, which forward and filter gradient share."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Refusal, lowers
from odt_sim.export.lowering.windows import Windows, element, padded, scattered, windows_of


def _windows(op: tf.Operation, image: tf.TensorShape, kernel: tf.TensorShape) -> Windows:
    if image[3] != kernel[2]:
        raise Refusal("lowers groups=1 only; use groups=1")
    return windows_of(op, image, (int(kernel[0]), int(kernel[1])))


def _columns(x: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    """Returns im2col of `x`: `[batch, rows, columns, height * width * channels]`, each window's elements side by side."""
    key = ("columns", x.ref(), windows)
    if key not in memo:
        image = padded(x, windows)
        memo[key] = tf.concat([element(image, windows, offset) for offset in windows.offsets], -1)
    return memo[key]


@lowers("Conv2D")
def conv2d(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes Y = columns(X) W, with the kernel as a matrix `[height * width * channels, filters]`."""
    x, kernel = inputs
    columns = _columns(x, _windows(op, x.shape, kernel.shape), memo)
    size, filters = columns.shape[-1], kernel.shape[3]
    product = tf.matmul(tf.reshape(columns, [1, -1, size]), tf.reshape(kernel, [1, size, filters]))
    return [tf.reshape(product, op.outputs[0].shape)]


@lowers("Conv2DBackpropFilter")
def conv2d_backprop_filter(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes dW = columns(X)^T dY."""
    x, _, gradient = inputs
    kernel = op.outputs[0].shape
    columns = _columns(x, _windows(op, x.shape, kernel), memo)
    flat = [tf.reshape(t, [1, -1, t.shape[-1]]) for t in (columns, gradient)]
    return [tf.reshape(tf.matmul(*flat, transpose_a=True), kernel)]


@lowers("Conv2DBackpropInput")
def conv2d_backprop_input(op: tf.Operation, inputs: list[tf.Tensor], memo: Memo) -> list[tf.Tensor]:
    """Computes dX = columns^T(dY W^T): products of the same place in the image are added."""
    _, kernel, gradient = inputs
    windows = _windows(op, op.outputs[0].shape, kernel.shape)
    flat = tf.reshape(gradient, [1, -1, gradient.shape[-1]])
    parts = []
    for i in range(windows.size[0]):
        for j in range(windows.size[1]):
            part = tf.matmul(flat, kernel[tf.newaxis, i, j], transpose_b=True)
            parts.append(tf.reshape(part, [*gradient.shape[:3], kernel.shape[2]]))
    return [scattered(parts, windows)]
