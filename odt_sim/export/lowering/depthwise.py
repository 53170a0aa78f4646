"""Depthwise convolution and its gradients.

TFLite's own kernel accepts variable weights and is the fastest for the forward pass. The input gradient is such a convolution
of the output gradient with the flipped kernel; with strides it would multiply mostly zeros, and sums of slices are faster.
"""

import operator
from itertools import product

import tensorflow as tf

from odt_sim.export.lowering.banded_kernels import backward
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.image_rows import elementwise
from odt_sim.export.lowering.late import late
from odt_sim.export.lowering.reduction import sum_over
from odt_sim.export.lowering.registry import Memo, Value, lowers
from odt_sim.export.lowering.windows import Windows, dilated, elements, padded, padded_by, part, sum_of, windows_of


def _windows(op: tf.Operation, image: tf.TensorShape, kernel: tf.TensorShape) -> Windows:
    return windows_of(op, image, (int(kernel[0]), int(kernel[1])))


@lowers("DepthwiseConv2dNative")
def depthwise_conv2d(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y[..., c m + k] = the sum over kernel elements p of X[p][..., c] W[p, c, k], for m filters per channel."""
    x, kernel = inputs
    _windows(op, x.shape, kernel.shape)  # raises if there is no kernel
    settings = {name: op.get_attr(name) for name in ("strides", "padding", "dilations")}
    return [tf.raw_ops.DepthwiseConv2dNative(input=x, filter=kernel, **settings)]


@lowers("DepthwiseConv2dNativeBackpropFilter")
def depthwise_backprop_filter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dW[p, c, k] = the sum over the windows of X[p][..., c] dY[..., c m + k]."""
    x, _, gradient = inputs
    kernel = op.outputs[0].shape
    windows = _windows(op, x.shape, kernel)
    image = padded(_repeated(late(x, gradient, memo), kernel[3]), windows)
    sums = [sum_over(elementwise(operator.mul, x, gradient), {0, 1, 2}) for x in elements(image, windows)]
    rows = [
        tf.concat(sums[i : i + kernel[1]], 0) for i in range(0, len(sums), kernel[1])
    ]  # XNNPACK concatenates few at once
    return [reshaped(tf.concat(rows, 0), kernel)]


def _repeated(x: tf.Tensor, times: int) -> tf.Tensor:
    """Return an image with every channel repeated `times` times."""
    if times == 1:
        return x
    _, height, width, channels = x.shape
    flat = reshaped(x, [-1, channels, 1])
    return reshaped(tf.concat([flat] * times, 2), [-1, height, width, channels * times])


@lowers("DepthwiseConv2dNativeBackpropInput")
def depthwise_backprop_input(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX: the convolution of dY, dilated by the strides, with the flipped kernel."""
    _, kernel, gradient = inputs
    _, height, width, channels = op.outputs[0].shape
    times = kernel.shape[3]
    windows = _windows(op, op.outputs[0].shape, kernel.shape)
    apart = windows.stride != (1, 1) and windows.dilation == (1, 1) and min(windows.size) >= max(windows.stride)
    dx = (_input_by_slices if apart else _input_by_convolution)(kernel, gradient, windows)
    if times == 1:
        return [dx]
    return [reshaped(tf.reduce_sum(reshaped(dx, [-1, channels, times]), -1), [-1, height, width, channels])]


def _input_by_convolution(kernel: tf.Tensor, gradient: tf.Tensor, windows: Windows) -> tf.Tensor:
    spread = dilated(gradient, *windows.stride)
    reach = [(size - 1) * step for size, step in zip(windows.size, windows.dilation, strict=True)]
    before = [r - b for r, b in zip(reach, windows.before, strict=True)]
    size = [n + r for n, r in zip(windows.image, reach, strict=True)]
    spread = padded_by(spread, (before[0], before[1]), (size[0], size[1]))
    turned = tf.reverse(reshaped(kernel, [*windows.size, -1, 1]), [0, 1])
    return tf.nn.depthwise_conv2d(spread, turned, [1, 1, 1, 1], "VALID", dilations=windows.dilation)


def _input_by_slices(kernel: tf.Tensor, gradient: tf.Tensor, windows: Windows) -> tf.Tensor:
    """Return the input gradient with strides: each pixel between two windows sums slices of dY times its weights."""
    rows, columns = (backward(windows, axis, 1) for axis in (0, 1))
    padded_gradient = padded_by(gradient, (rows.before, columns.before), (rows.input_blocks, columns.input_blocks))
    flat = reshaped(kernel, [windows.size[0] * windows.size[1], -1])
    weights = [flat[i : i + 1] for i in range(flat.shape[0])]
    slices: dict[tuple[int, int], tf.Tensor] = {}
    for m, n in product(rows.offsets, columns.offsets):
        slices[m, n] = part(padded_gradient, slice(m, m + rows.blocks), slice(n, n + columns.blocks))

    def place(row: int, column: int) -> tf.Tensor:
        taps = product((tap for tap in rows.taps if tap[0] == row), (tap for tap in columns.taps if tap[0] == column))
        weighted = ((slices[m, n], weights[i * windows.size[1] + j]) for (_, i, m), (_, j, n) in taps)
        return sum_of(elementwise(operator.mul, *pair) for pair in weighted)

    lines = [tf.concat([place(row, column) for column in range(columns.outputs)], -1) for row in range(rows.outputs)]
    lines = [reshaped(line, [-1, rows.blocks, 1, columns.blocks * line.shape[3]]) for line in lines]
    shape = [-1, rows.blocks * rows.outputs, columns.blocks * columns.outputs, gradient.shape[3]]
    return part(reshaped(tf.concat(lines, 2), shape), slice(windows.image[0]), slice(windows.image[1]))
