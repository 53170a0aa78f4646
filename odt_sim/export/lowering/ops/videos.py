"""Conv3D, pooling over depth, height and width, and their gradients.

The frames under each depth of the kernel become channels of one Conv2D. A video `[batch, depth, height, width,
channels]` becomes images `[batch * depth', height, width, kernel depth * channels]` for the depth' positions of the
kernel, and the kernel `[kernel height, kernel width, kernel depth * channels, filters]`.
"""

from dataclasses import dataclass
from math import prod

import tensorflow as tf

from odt_sim.export.lowering.layout.open_batch import OPEN
from odt_sim.export.lowering.layout.windows import Windows, elements, padded, scattered, sum_of, windows_along
from odt_sim.export.lowering.ops import convolution
from odt_sim.export.lowering.ops.creation import reshaped
from odt_sim.export.lowering.ops.pooling import LOWEST, first_maxima
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers


@dataclass(frozen=True)
class Volumes:
    """The windows on a video.

    Attributes:
        depth: The windows along the depth, on an image `[batch, depth, 1, height * width * channels]`.
        frame: The windows on a frame.
    """

    depth: Windows
    frame: Windows


def volumes_of(op: tf.Operation, video: tf.TensorShape, size: tuple[int, int, int]) -> Volumes:
    """Return the windows of an op of the Conv3D and 3D pooling families."""
    if op.get_attr("data_format") != b"NDHWC":
        raise Refusal('supports only data_format="channels_last"; use that')
    strides = op.get_attr("strides")[1:4]
    dilations = op.get_attr("dilations")[1:4] if "dilations" in op.node_def.attr else [1, 1, 1]
    same = op.get_attr("padding") == b"SAME"
    axes = [[int(own[i]) for own in (video[1:4], size, strides, dilations)] for i in range(3)]
    return Volumes(windows_along([axes[0], [1, 1, 1, 1]], same=same), windows_along(axes[1:], same=same))


def frames(x: tf.Tensor, depth: Windows, value: float = 0.0) -> list[tf.Tensor]:
    """Return the frames under each depth of the windows, each `[batch * count, height, width, channels]`."""
    shape = [int(n) for n in x.shape[1:]]
    image = reshaped(x, [-1, shape[0], 1, prod(shape[1:])])
    return [reshaped(own, [-1, *shape[1:]]) for own in elements(padded(image, depth, value), depth)]


def video(parts: list[tf.Tensor], depth: Windows) -> tf.Tensor:
    """Add up frames at their depths in a video: the adjoint of `frames`."""
    shape = [int(n) for n in parts[0].shape[1:]]
    images = [reshaped(own, [-1, depth.count[0], 1, prod(shape)]) for own in parts]
    return reshaped(scattered(images, depth), [-1, depth.image[0], *shape])


def _flat_kernel(kernel: tf.Tensor) -> tf.Tensor:
    deep, height, width, channels, filters = kernel.shape
    return reshaped(tf.transpose(kernel, [1, 2, 0, 3, 4]), [height, width, deep * channels, filters])


def _joined(x: tf.Tensor, depth: Windows, memo: Memo) -> tf.Tensor:
    """Return the frames under each depth of the kernel side by side in the channels, memoized."""
    key = ("frames", x.ref(), depth)
    if key not in memo:
        own = frames(x, depth)
        memo[key] = tf.concat(own, -1) if len(own) > 1 else own[0]
    return memo[key]


def _groups(x: int, kernel: tf.TensorShape) -> int:
    """Return the number of channel groups of a convolution."""
    return int(x) // int(kernel[3])


def _split(x: tf.Tensor, groups: int) -> list[tf.Tensor]:
    return tf.split(x, groups, -1) if groups > 1 else [x]


def _joined_channels(parts: list[tf.Tensor]) -> tf.Tensor:
    return tf.concat(parts, -1) if len(parts) > 1 else parts[0]


def _volumes(op: tf.Operation, shape: tf.TensorShape, kernel: tf.TensorShape) -> Volumes:
    return volumes_of(op, shape, (int(kernel[0]), int(kernel[1]), int(kernel[2])))


@lowers("Conv3D")
def conv3d(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the sum over kernel elements p of X[p] W[p], with X[p] under element p, for each group of channels."""
    x, kernel = inputs
    volumes, groups = _volumes(op, x.shape, kernel.shape), _groups(x.shape[-1], kernel.shape)
    images = _joined_channels(
        [
            convolution.product(_joined(own, volumes.depth, memo), _flat_kernel(weights), volumes.frame, memo)
            for own, weights in zip(_split(x, groups), _split(kernel, groups), strict=True)
        ]
    )
    return [reshaped(images, [OPEN, volumes.depth.count[0], *images.shape[1:]])]


def _images(x: tf.Tensor) -> tf.Tensor:
    return reshaped(x, [OPEN, *x.shape[2:]])


@lowers("Conv3DBackpropFilterV2")
def conv3d_backprop_filter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dW[p] = X[p]^T dY for the kernel elements p."""
    x, _, gradient = inputs
    kernel = op.outputs[0].shape
    volumes, groups = _volumes(op, x.shape, kernel), _groups(x.shape[-1], kernel)
    return [
        _joined_channels(
            [
                _kernel_gradient(own, of_own, volumes, kernel[0], memo)
                for own, of_own in zip(_split(x, groups), _split(_images(gradient), groups), strict=True)
            ]
        )
    ]


def _kernel_gradient(x: tf.Tensor, gradient: tf.Tensor, volumes: Volumes, deep: int, memo: Memo) -> tf.Tensor:
    flat = convolution.kernel_gradient(_joined(x, volumes.depth, memo), gradient, volumes.frame, memo)
    shape = [*volumes.frame.size, deep, x.shape[-1], gradient.shape[-1]]
    return tf.transpose(reshaped(flat, shape), [2, 0, 1, 3, 4])


@lowers("Conv3DBackpropInputV2")
def conv3d_backprop_input(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX: for each pixel, the sum of dY W[p]^T over the kernel elements p that covered it."""
    _, kernel, gradient = inputs
    shape = op.outputs[0].shape
    volumes, groups = _volumes(op, shape, kernel.shape), _groups(shape[-1], kernel.shape)
    parts = []
    for weights, own in zip(_split(kernel, groups), _split(_images(gradient), groups), strict=True):
        images = convolution.image_gradient(_flat_kernel(weights), own, volumes.frame, memo)
        parts.append(video(tf.split(images, kernel.shape[0], -1), volumes.depth))
    return [_joined_channels(parts)]


def _pooling_volumes(op: tf.Operation, shape: tf.TensorShape) -> Volumes:
    one, deep, height, width, channels = op.get_attr("ksize")
    if (one, channels) != (1, 1):
        raise Refusal("pools only over depth, height and width; use MaxPooling3D or AveragePooling3D")
    return volumes_of(op, shape, (deep, height, width))


def _elements(x: tf.Tensor, volumes: Volumes, value: float = 0.0) -> list[tf.Tensor]:
    """Return each element of all windows as a tensor `[batch * depth, height, width, channels]`."""
    every_frame = [padded(own, volumes.frame, value) for own in frames(x, volumes.depth, value)]
    return [own for frame in every_frame for own in elements(frame, volumes.frame)]


def _scattered(parts: list[tf.Tensor], volumes: Volumes) -> tf.Tensor:
    """Add up the windows' elements at their positions in the video: the adjoint of `_elements`."""
    each = len(volumes.frame.offsets)
    groups = [parts[i : i + each] for i in range(0, len(parts), each)]
    return video([scattered(group, volumes.frame) for group in groups], volumes.depth)


def _video(images: tf.Tensor, volumes: Volumes) -> tf.Tensor:
    return reshaped(images, [OPEN, volumes.depth.count[0], *images.shape[1:]])


def _numbers(shape: tf.TensorShape, volumes: Volumes) -> tf.Tensor:
    """Return the number of elements of each window that lie inside the video, for one row of the batch."""
    return sum_of(_elements(tf.ones([1, *shape[1:4], 1]), volumes))


@lowers("MaxPool3D")
def max_pool(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the maximum of each window of X."""
    (x,) = inputs
    volumes = _pooling_volumes(op, x.shape)
    largest = frames(x, volumes.depth, LOWEST)
    images = largest[0]
    for own in largest[1:]:
        images = tf.maximum(images, own)
    settings = {name: [1, *op.get_attr(name)[2:]] for name in ("ksize", "strides")}
    return [_video(tf.raw_ops.MaxPool(input=images, padding=op.get_attr("padding"), **settings), volumes)]


@lowers("MaxPool3DGrad")
def max_pool_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY where X is its window's first maximum, else 0, as XLA and oneDNN do; eager TensorFlow uses all."""
    x, y, gradient = inputs
    volumes = _pooling_volumes(op, x.shape)
    return [_scattered(first_maxima(_elements(x, volumes, LOWEST), _images(y), _images(gradient)), volumes)]


@lowers("AvgPool3D")
def average_pool(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the mean of the elements of each window of X that lie inside the video."""
    (x,) = inputs
    volumes = _pooling_volumes(op, x.shape)
    total = _video(sum_of(_elements(x, volumes)), volumes)
    return [total / _video(_numbers(x.shape, volumes), volumes)]


@lowers("AvgPool3DGrad")
def average_pool_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = the sum over windows of dY / (the number of the window's elements inside the video)."""
    gradient, shape = inputs[1], op.outputs[0].shape
    volumes = _pooling_volumes(op, shape)
    share = _images(gradient / _video(_numbers(shape, volumes), volumes))
    return [_scattered([share] * (len(volumes.depth.offsets) * len(volumes.frame.offsets)), volumes)]
