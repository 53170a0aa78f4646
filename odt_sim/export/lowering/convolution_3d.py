"""Conv3D and its gradients: the frames under each depth of the kernel become channels of one Conv2D.

A video `[batch, depth, height, width, channels]` becomes images `[batch * depth', height, width, kernel depth * channels]`
for the depth' positions of the kernel, and the kernel `[kernel height, kernel width, kernel depth * channels, filters]`.
"""

from dataclasses import dataclass
from math import prod

import tensorflow as tf

from odt_sim.export.lowering import convolution
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.open_batch import OPEN
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers
from odt_sim.export.lowering.windows import Windows, elements, padded, scattered, windows_along


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


def _images(gradient: tf.Tensor) -> tf.Tensor:
    return reshaped(gradient, [OPEN, *gradient.shape[2:]])


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
