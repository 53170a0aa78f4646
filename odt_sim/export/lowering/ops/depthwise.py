"""Depthwise convolution and its gradients.

TFLite's kernel accepts variable weights and is the fastest for the forward pass. The input gradient is a depthwise
convolution of the output gradient with the flipped kernel. With strides, that would multiply mostly zeros, so sums of
slices are faster.

The kernel's gradient uses slices of the output gradient, not of the image: the input gradient pads and slices it anyway,
and slices of the image would occupy memory since the forward pass (mobilenet_v2: 0.93 of the time, 0.83 of the memory).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import tensorflow as tf

from odt_sim.export.lowering.layout.bands import Bands, backward
from odt_sim.export.lowering.layout.late import late, recomputed
from odt_sim.export.lowering.layout.windows import Windows, dilated, kernel_windows, padded, padded_by, part, sum_of
from odt_sim.export.lowering.ops.creation import FIRST, reshaped
from odt_sim.export.lowering.ops.reduction import sum_over
from odt_sim.export.lowering.registry import Memo, Value, lowers


@dataclass(frozen=True)
class ShiftedGradients:
    """Slices of the output gradient; the gradients of image and kernel share them.

    Attributes:
        gradient: The gradient, `[batch, rows, columns, channels]`.
        windows: The windows on the input.
        memo: Values shared between lowerings.
    """

    gradient: tf.Tensor
    windows: Windows
    memo: Memo

    @cached_property
    def bands(self) -> Bands:
        """The dependence of the input's rows and columns on the gradient's rows and columns."""
        return backward(self.windows, 0), backward(self.windows, 1)

    @property
    def taps(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield, for each kernel element, its position in a block of the input and the shift of the gradients to slice."""
        rows, columns = (sorted(band.taps, key=lambda tap: tap[1]) for band in self.bands)
        for (row, _, m), (column, _, n) in product(rows, columns):
            yield (row, column), (m, n)

    def under(self, shift: tuple[int, int]) -> tf.Tensor:
        """Return the gradients that are `shift` rows and columns from each block of the input."""
        key = ("gradients", self.gradient.ref(), self.windows, shift)
        if key not in self.memo:
            (m, n), (rows, columns) = shift, self.bands
            self.memo[key] = part(self.padded, slice(m, m + rows.blocks), slice(n, n + columns.blocks))
        return self.memo[key]

    @property
    def padded(self) -> tf.Tensor:
        """The gradient with zeros around it."""
        rows, columns = self.bands
        key = ("padded", self.gradient.ref(), rows, columns)
        if key not in self.memo:
            size = rows.input_blocks, columns.input_blocks
            self.memo[key] = padded_by(self.gradient, (rows.before, columns.before), size)
        return self.memo[key]


MOST_TAPS = 25
"""The most elements of a kernel for whose gradient each one is summed on its own, in about four ops."""

MOST_CHANNELS = 4832
"""The channels that LiteRT's kernel holds in its buffer (`kAccBufferMaxSize`); with more, it never ends."""


@lowers("DepthwiseConv2dNative")
def depthwise_conv2d(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y[..., c m + k] = the sum over kernel elements p of X[p][..., c] W[p, c, k], for m filters per channel."""
    x, kernel = inputs
    kernel_windows(op, x.shape, kernel.shape)  # raises if there is no kernel
    settings = {name: op.get_attr(name) for name in ("strides", "padding", "dilations")}
    return [tf.raw_ops.DepthwiseConv2dNative(input=x, filter=kernel, **settings)]


@lowers("DepthwiseConv2dNativeBackpropFilter")
def depthwise_backprop_filter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dW[p, c, k] = the sum of X[..., c] times the gradients dY[..., c m + k] that W[p] connects to it."""
    x, _, gradient = inputs
    kernel = op.outputs[0].shape
    return [depthwise_filter_gradient(x, gradient, kernel, kernel_windows(op, x.shape, kernel), memo)]


def depthwise_filter_gradient(
    x: tf.Tensor, gradient: tf.Tensor, kernel: tf.TensorShape, windows: Windows, memo: Memo
) -> tf.Tensor:
    """Return the gradient of a depthwise kernel of a shape `[height, width, channels, filters per channel]`."""
    plain = windows.stride == windows.dilation == (1, 1) and kernel[3] == 1 and x.shape[0] is not None
    if plain and kernel[0] * kernel[1] > MOST_TAPS and x.shape[3] <= MOST_CHANNELS:
        return _filter_by_convolution(padded(x, windows), gradient)
    gradients = ShiftedGradients(gradient, windows, memo)
    moves = windows.stride != (1, 1) or kernel[3] > 1
    own = (late if moves else recomputed)(x, gradients.padded, memo)
    images = _phases(_repeated(own, kernel[3]), gradients.bands)
    products = [
        tf.multiply(images[place], gradients.under(shift), name=f"{FIRST}Mul")  # ahead of the input gradient
        for place, shift in gradients.taps
    ]
    sums = [sum_over(own, {0, 1, 2}) for own in products]
    rows = [
        tf.concat(sums[i : i + kernel[1]], 0) for i in range(0, len(sums), kernel[1])
    ]  # XNNPACK concatenates only a few at once
    return reshaped(tf.concat(rows, 0), kernel)


def _filter_by_convolution(x: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Return dW as the sum over examples of the convolution of each image with its gradient as the kernel.

    As many examples as possible are side by side, as channels of one op.
    """
    images, kernels = (tf.transpose(t, [1, 2, 0, 3]) for t in (x, gradient))
    height, width, rows, channels = images.shape
    step = min(MOST_CHANNELS // channels, rows)
    sums = []
    for first in range(0, rows, step):
        count = min(step, rows - first)
        image = reshaped(images[:, :, first : first + count], [1, height, width, count * channels])
        kernel = reshaped(kernels[:, :, first : first + count], [*kernels.shape[:2], count * channels, 1])
        found = tf.nn.depthwise_conv2d(image, kernel, [1, 1, 1, 1], "VALID")
        sums.append(tf.reduce_sum(reshaped(found, [*found.shape[1:3], count, channels]), 2))
    return tf.expand_dims(sum_of(sums), 3)


def _phases(x: tf.Tensor, bands: Bands) -> dict[tuple[int, int], tf.Tensor]:
    """Return the pixels at each position within the blocks of an image."""
    rows, columns = bands
    down, right = rows.outputs, columns.outputs
    if (down, right) == (1, 1):
        return {(0, 0): x}
    channels = x.shape[3]
    x = padded_by(x, (0, 0), (rows.blocks * down, columns.blocks * right))
    lines = _split(reshaped(x, [-1, down, columns.blocks * right * channels]), down, 1)
    found = {}
    for i, line in enumerate(lines):
        for j, own in enumerate(_split(reshaped(line, [-1, right * channels]), right, 1)):
            found[i, j] = reshaped(own, [-1, rows.blocks, columns.blocks, channels])
    return found


def _split(x: tf.Tensor, count: int, axis: int) -> list[tf.Tensor]:
    return list(tf.split(x, count, axis)) if count > 1 else [x]


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
    windows = kernel_windows(op, op.outputs[0].shape, kernel.shape)
    return [depthwise_input_gradient(kernel, ShiftedGradients(gradient, windows, memo))]


def depthwise_input_gradient(kernel: tf.Tensor, gradients: ShiftedGradients) -> tf.Tensor:
    """Return the gradient of a depthwise convolution's input."""
    windows, (*_, channels, times) = gradients.windows, kernel.shape
    if windows.stride != (1, 1) and windows.dilation == (1, 1) and min(windows.size) >= max(windows.stride):
        dx = _input_by_slices(kernel, gradients)
    else:
        spread = gradients.padded if windows.stride == (1, 1) else _spread(gradients.gradient, windows)
        turned = tf.reverse(reshaped(kernel, [*windows.size, -1, 1]), [0, 1])
        dx = tf.nn.depthwise_conv2d(spread, turned, [1, 1, 1, 1], "VALID", dilations=windows.dilation)
    if times == 1:
        return dx
    return reshaped(tf.reduce_sum(reshaped(dx, [-1, channels, times]), -1), [-1, *windows.image, channels])


def _spread(gradient: tf.Tensor, windows: Windows) -> tf.Tensor:
    """Return a gradient with zeros between its rows and columns and around them."""
    reach = [(size - 1) * step for size, step in zip(windows.size, windows.dilation, strict=True)]
    before = [r - b for r, b in zip(reach, windows.before, strict=True)]
    size = [n + r for n, r in zip(windows.image, reach, strict=True)]
    return padded_by(dilated(gradient, *windows.stride), (before[0], before[1]), (size[0], size[1]))


def _input_by_slices(kernel: tf.Tensor, gradients: ShiftedGradients) -> tf.Tensor:
    """Return the input gradient with strides: each position within a stride sums slices of dY times its weights."""
    windows, (rows, columns) = gradients.windows, gradients.bands
    flat = reshaped(kernel, [windows.size[0] * windows.size[1], -1])
    weights = [flat[i : i + 1] for i in range(flat.shape[0])]

    def place(own: tuple[int, int]) -> tf.Tensor:
        return sum_of(
            gradients.under(shift) * weight
            for (found, shift), weight in zip(gradients.taps, weights, strict=True)
            if found == own
        )

    lines = [tf.concat([place((row, column)) for column in range(columns.outputs)], -1) for row in range(rows.outputs)]
    lines = [reshaped(line, [-1, rows.blocks, 1, columns.blocks * line.shape[3]]) for line in lines]
    shape = [-1, rows.blocks * rows.outputs, columns.blocks * columns.outputs, gradients.gradient.shape[3]]
    return part(reshaped(tf.concat(lines, 2), shape), slice(windows.image[0]), slice(windows.image[1]))
