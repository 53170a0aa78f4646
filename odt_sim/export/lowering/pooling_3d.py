"""Pooling over depth, height and width, and its gradients."""

import tensorflow as tf

from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.convolution_3d import Volumes, frames, video, volumes_of
from odt_sim.export.lowering.open_batch import OPEN
from odt_sim.export.lowering.pooling import LOWEST, first_maxima
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers
from odt_sim.export.lowering.windows import elements, padded, scattered, sum_of


def _volumes(op: tf.Operation, shape: tf.TensorShape) -> Volumes:
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


def _images(x: tf.Tensor) -> tf.Tensor:
    return reshaped(x, [OPEN, *x.shape[2:]])


def _video(images: tf.Tensor, volumes: Volumes) -> tf.Tensor:
    return reshaped(images, [OPEN, volumes.depth.count[0], *images.shape[1:]])


def _numbers(shape: tf.TensorShape, volumes: Volumes) -> tf.Tensor:
    """Return the number of elements of each window that lie inside the video, for one row of the batch."""
    return sum_of(_elements(tf.ones([1, *shape[1:4], 1]), volumes))


@lowers("MaxPool3D")
def max_pool(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the maximum of each window of X."""
    (x,) = inputs
    volumes = _volumes(op, x.shape)
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
    volumes = _volumes(op, x.shape)
    return [_scattered(first_maxima(_elements(x, volumes, LOWEST), _images(y), _images(gradient)), volumes)]


@lowers("AvgPool3D")
def average_pool(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the mean of the elements of each window of X that lie inside the video."""
    (x,) = inputs
    volumes = _volumes(op, x.shape)
    total = _video(sum_of(_elements(x, volumes)), volumes)
    return [total / _video(_numbers(x.shape, volumes), volumes)]


@lowers("AvgPool3DGrad")
def average_pool_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = the sum over windows of dY / (the number of the window's elements inside the video)."""
    gradient, shape = inputs[1], op.outputs[0].shape
    volumes = _volumes(op, shape)
    share = _images(gradient / _video(_numbers(shape, volumes), volumes))
    return [_scattered([share] * (len(volumes.depth.offsets) * len(volumes.frame.offsets)), volumes)]
