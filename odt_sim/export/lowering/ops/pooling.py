"""Max-pooling, its gradient, the bias and ReLU that are moved after it, and the gradient of average pooling.

If only max-pooling follows a convolution's bias and ReLU, these run on the smaller pooled image: max(X + b) = max(X) + b
and max(relu(X)) = relu(max(X)) exactly, because rounding is monotone (mnist_cnn: 0.85 of the time). A window that the ReLU
zeroes passes no gradient; in any other window the maximum stays at its position.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import tensorflow as tf

from odt_sim.export.lowering.layout.late import recomputed, zero_after
from odt_sim.export.lowering.layout.windows import (
    Windows,
    assembled,
    elements,
    padded,
    scattered,
    split,
    sum_of,
    windows_of,
)
from odt_sim.export.lowering.ops.creation import reshaped
from odt_sim.export.lowering.ops.reduction import sum_over
from odt_sim.export.lowering.registry import Deferred, Memo, Refusal, Value, lowers, tensor_of

LOWEST = tf.float32.min


@dataclass(frozen=True)
class Unpooled:
    """A convolution's output before max-pooling, without trailing rows and columns that no window covers.

    Attributes:
        image: The output, `[batch, height, width, channels]`.
        pooling: The traced pooling op.
    """

    image: tf.Tensor
    pooling: tf.Operation

    @cached_property
    def pooled(self) -> tf.Tensor:
        """The pooled image, `[batch, rows, columns, channels]`."""
        return pool(self.pooling, self.image)

    def routed(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return the gradient of `image` from that of `pooled`: it goes to the first maximum of each window."""
        windows = pooling_windows(self.pooling, self.image.shape)
        return to_first_maxima(self.image, self.pooled, gradient, windows)


@dataclass(frozen=True)
class BeforePooling(Deferred):
    """The input of a max-pooling: a convolution's output with pending bias and ReLU.

    Attributes:
        unpooled: The convolution's output.
        bias: The bias to add, `[channels]`; None for no bias.
        relu: Whether a ReLU follows.
    """

    unpooled: Unpooled
    bias: tf.Tensor | None = None
    relu: bool = False

    def tensor(self) -> tf.Tensor:
        """Return the input of the traced pooling."""
        return self.finished(self.unpooled.image)

    def finished(self, image: tf.Tensor) -> tf.Tensor:
        """Return an image with the bias and the ReLU."""
        biased = image if self.bias is None else image + self.bias
        return tf.nn.relu(biased) if self.relu else biased


@dataclass(frozen=True)
class Routed(Deferred):
    """The gradient of a max-pooling's input: `gradient` at the windows' first maxima, zero elsewhere."""

    unpooled: Unpooled
    gradient: tf.Tensor

    @cached_property
    def routed(self) -> tf.Tensor:
        """The gradient in the shape of the image before pooling."""
        return self.unpooled.routed(self.gradient)

    def tensor(self) -> tf.Tensor:
        """Return `routed`."""
        return self.routed


def following_pooling(op: tf.Operation) -> tf.Operation | None:
    """Return the max-pooling that is the only user of an op's output, after at most a bias and a ReLU; else None."""
    for allowed in (("BiasAdd", "Relu", "MaxPool"), ("Relu", "MaxPool"), ("MaxPool",)):
        users = op.outputs[0].consumers()
        forward = [user for user in users if user.type not in ("MaxPoolGrad", "ReluGrad")]
        if len(forward) != 1 or forward[0].type not in allowed:
            return None
        op = forward[0]
        if op.type == "MaxPool":
            return op
    return None


def positive(x: tf.Tensor, one: tf.Tensor | float = 1.0) -> tf.Tensor:
    """Return `one` (1) where `x` > 0 and 0 where it is 0, for nonnegative `x`, by ops that XNNPACK runs."""
    return tf.math.ceil(tf.minimum(x, one))


def pooling_windows(op: tf.Operation, image: tf.TensorShape) -> Windows:
    """Return the windows of a pooling op on `image`, `[batch, height, width, channels]`."""
    size = op.get_attr("ksize")
    if size[0] != 1 or size[3] != 1:
        raise Refusal("pools only over height and width; use MaxPooling2D or AveragePooling2D")
    return windows_of(op, image, (size[1], size[2]))


def pool(op: tf.Operation, image: tf.Tensor) -> tf.Tensor:
    """Emit a traced max-pooling on another image."""
    pooling_windows(op, image.shape)  # raises if there is no kernel
    sizes = {name: op.get_attr(name) for name in ("ksize", "strides", "padding")}
    return tf.raw_ops.MaxPool(input=image, **sizes)


def to_first_maxima(x: tf.Tensor, y: tf.Tensor, gradient: tf.Tensor, windows: Windows) -> tf.Tensor:
    """Return `gradient` at the first maximum (row by row) of each window of `x`; overlapping windows add up.

    Args:
        x: The image, `[batch, height, width, channels]`.
        y: The maxima of the windows, `[batch, rows, columns, channels]`.
        gradient: The maxima's gradient, of the same shape.
        windows: The positions of the windows.
    """
    if windows.splits:
        return assembled(first_maxima(split(x, windows), y, gradient), windows)
    image = padded(x, windows, LOWEST)
    return scattered(first_maxima(list(elements(image, windows)), y, gradient), windows)


def first_maxima(elements: list[tf.Tensor], y: tf.Tensor, gradient: tf.Tensor) -> list[tf.Tensor]:
    """Return the gradient of each window element: the first element equal to `y` receives the whole gradient."""
    parts = []
    for x in elements[:-1]:
        left = positive(y - x) * gradient
        parts.append(gradient - left)
        gradient = left
    return [*parts, gradient]


@lowers("MaxPool", deferred=True)
def max_pool(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the maximum of each window of X."""
    (x,) = inputs
    if not isinstance(x, BeforePooling):
        return [pool(op, x)]
    return [x.finished(x.unpooled.pooled)]


@lowers("MaxPoolGrad", deferred=True)
def max_pool_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY where X is its window's first maximum, else 0."""
    x, y, gradient = inputs
    if not isinstance(x, BeforePooling):
        return [to_first_maxima(x, y, gradient, pooling_windows(op, x.shape))]
    return [Routed(x.unpooled, gradient * positive(y) if x.relu else gradient)]


@lowers("Relu", deferred=True)
def relu(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = max(X, 0)."""
    (x,) = inputs
    return [replace(x, relu=True) if isinstance(x, BeforePooling) else tf.nn.relu(x)]


@lowers("ReluGrad", deferred=True)
def relu_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY where Y > 0, else 0."""
    gradient, y = inputs
    if isinstance(y, BeforePooling):
        return [gradient]  # the pooling's gradient is already zero where the ReLU was
    gradient = gradient.tensor() if isinstance(gradient, Deferred) else gradient
    y = y if op.inputs[1].op.type == "Relu" else tf.nn.relu(y)
    return [gradient * positive(recomputed(y, gradient, memo), 1.0 + zero_after(gradient))]


@lowers("BiasAdd", deferred=True)
def bias_add(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X + b along the last axis, or along the second."""
    x, bias = inputs
    if not _along_last_axis(op):
        x = tensor_of(x)
        return [x + reshaped(bias, [-1, *[1] * (len(x.shape) - 2)])]
    return [replace(x, bias=bias) if isinstance(x, BeforePooling) else x + bias]


@lowers("BiasAddGrad", deferred=True)
def bias_add_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute db = the sum of dY over all axes except the last, or except the second."""
    (gradient,) = inputs
    if not _along_last_axis(op):
        gradient = tensor_of(gradient)
        return [sum_over(gradient, {0, *range(2, len(gradient.shape))})]
    gradient = gradient.gradient if isinstance(gradient, Routed) else gradient
    return [sum_over(gradient, set(range(len(gradient.shape) - 1)))]


def _along_last_axis(op: tf.Operation) -> bool:
    """Return whether a bias is added along the last axis; Keras also adds vectors along the second axis by BiasAdd."""
    return bool(op.get_attr("data_format") == b"NHWC")


@lowers("AvgPoolGrad")
def avg_pool_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = the sum over windows of dY / (the number of the window's elements inside the image)."""
    gradient = inputs[1]
    windows = pooling_windows(op, op.outputs[0].shape)
    if windows.splits:
        size = windows.size[0] * windows.size[1]
        return [assembled([gradient * (1.0 / size)] * size, windows)]
    inside = padded(tf.ones([1, *windows.image, 1]), windows)
    number = sum_of(elements(inside, windows))
    return [scattered([gradient / number] * len(windows.offsets), windows)]
