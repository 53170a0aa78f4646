"""Convolutions and pooling of ATen, which have channels on axis 1; TensorFlow's have channels last."""

from collections.abc import Callable
from math import prod
from typing import Any

import tensorflow as tf

from odt_sim.export.torch.registry import Refusal, computes, expect, pair

_CONVOLUTIONS = {1: tf.nn.conv1d, 2: tf.nn.conv2d, 3: tf.nn.conv3d}
_LARGEST = {1: tf.nn.max_pool1d, 2: tf.nn.max_pool2d, 3: tf.nn.max_pool3d}
_MEAN = {1: tf.nn.avg_pool1d, 2: tf.nn.avg_pool2d, 3: tf.nn.avg_pool3d}


def last(x: tf.Tensor) -> tf.Tensor:
    """Move the channels from axis 1 to the end."""
    rank = len(x.shape)
    return tf.transpose(x, [0, *range(2, rank), 1])


def first(x: tf.Tensor) -> tf.Tensor:
    """Move the channels from the end to axis 1."""
    rank = len(x.shape)
    return tf.transpose(x, [0, rank - 1, *range(1, rank - 1)])


def on_last(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return a function of images with channels on axis 1, given a function of images with channels last."""
    return lambda x, *args, **kwargs: first(function(last(x), *args, **kwargs))


@computes("conv1d", "conv2d", "conv3d")
def convolve(
    x: tf.Tensor,
    weight: tf.Tensor,
    bias: tf.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tf.Tensor:
    """Return a convolution with a kernel `[filters, channels, ...]`."""
    count = len(x.shape) - 2
    stride, dilation, kernel = pair(stride, count), pair(dilation, count), weight.shape[2:]
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if padding in ("same", "valid"):
        pads = [(r // 2, r - r // 2) if padding == "same" else (0, 0) for r in reach]
    else:
        pads = [(p, p) for p in pair(padding, count)]
    image, same = last(x), all(s == 1 for s in stride) and pads == [(r // 2, r - r // 2) for r in reach]
    if not same and any(map(any, pads)):
        image = tf.pad(image, [(0, 0), *pads, (0, 0)])
    result = _grouped(image, weight, stride, dilation, groups, "SAME" if same else "VALID")
    return first(result if bias is None else result + bias)


def _grouped(
    image: tf.Tensor, weight: tf.Tensor, stride: list[int], dilation: list[int], groups: int, padding: str
) -> tf.Tensor:
    count, channels = len(stride), image.shape[-1]
    spatial = list(range(2, count + 2))
    if count == 2 and groups == channels and groups > 1:
        if stride[0] != stride[1] or (max(stride) > 1 and max(dilation) > 1):
            raise Refusal(
                "is a depthwise convolution with a stride and a dilation, or two different strides; use only one"
            )
        multiplier = weight.shape[0] // groups
        kernel = tf.reshape(
            tf.transpose(tf.reshape(weight, [groups, multiplier, *weight.shape[2:]]), [2, 3, 0, 1]),
            [*weight.shape[2:], groups, multiplier],
        )
        return tf.nn.depthwise_conv2d(image, kernel, [1, *stride, 1], padding, dilations=dilation)
    kernel = tf.transpose(weight, [*spatial, 1, 0])
    convolution = _CONVOLUTIONS[count]
    settings: dict[str, Any] = {"padding": padding, "dilations": dilation}
    strides: Any = stride
    if count == 3:
        strides, settings["dilations"] = [1, *stride, 1], [1, *dilation, 1]
    parts = zip(tf.split(image, groups, -1), tf.split(kernel, groups, -1), strict=True)
    return tf.concat([convolution(part, own, strides, **settings) for part, own in parts], -1)


@computes("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def convolve_transposed(
    x: tf.Tensor,
    weight: tf.Tensor,
    bias: tf.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> tf.Tensor:
    """Return a transposed convolution with a kernel `[channels, filters, ...]`."""
    count = len(x.shape) - 2
    stride, padding, extra = pair(stride, count), pair(padding, count), pair(output_padding, count)
    image, kernel = last(x), _spread(tf.transpose(weight, [*range(2, count + 2), 1, 0]), pair(dilation, count))
    if count == 1:
        image, kernel, stride, padding, extra = image[:, None], kernel[None], [1, *stride], [0, *padding], [0, *extra]
    result = _transposed(image, kernel, stride, groups)
    full = result.shape[1:-1]
    result = tf.pad(result, [(0, 0), *((0, e) for e in extra), (0, 0)])
    result = result[:, *(slice(p, f + e - p) for p, f, e in zip(padding, full, extra, strict=True))]
    result = result[:, 0] if count == 1 else result
    return first(result if bias is None else result + bias)


def _transposed(image: tf.Tensor, kernel: tf.Tensor, stride: list[int], groups: int) -> tf.Tensor:
    """Return the unpadded result for a kernel `[..., filters of a group, channels]`."""
    count, channels, filters = len(stride), image.shape[-1], kernel.shape[-2]
    spatial = [(n - 1) * s + k for n, s, k in zip(image.shape[1:-1], stride, kernel.shape, strict=False)]
    shape = [image.shape[0], *spatial]
    if count == 2 and groups == channels > 1 and filters == 1 and stride[0] == stride[1]:
        own, sizes = tf.transpose(kernel, [0, 1, 3, 2]), [*shape, channels]
        return tf.nn.depthwise_conv2d_backprop_input(sizes, own, image, [1, *stride, 1], "VALID")
    convolution = tf.nn.conv2d_transpose if count == 2 else tf.nn.conv3d_transpose
    parts = zip(tf.split(image, groups, -1), tf.split(kernel, groups, -1), strict=True)
    return tf.concat([convolution(x, k, [*shape, filters], [1, *stride, 1], "VALID") for x, k in parts], -1)


def _spread(kernel: tf.Tensor, dilation: list[int]) -> tf.Tensor:
    """Return a kernel with zeros between its elements, for a transposed convolution with dilation."""
    for axis, distance in enumerate(dilation):
        if distance > 1:
            size = kernel.shape.as_list()
            gaps = tf.zeros([*size[: axis + 1], distance - 1, *size[axis + 1 :]], kernel.dtype)
            spread = tf.reshape(
                tf.concat([tf.expand_dims(kernel, axis + 1), gaps], axis + 1),
                [*size[:axis], size[axis] * distance, *size[axis + 1 :]],
            )
            kernel = spread[(*[slice(None)] * axis, slice((size[axis] - 1) * distance + 1))]
    return kernel


@computes("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    x: tf.Tensor, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> tuple[tf.Tensor]:
    """Return the largest value of each window, without its position."""
    count = len(x.shape) - 2
    expect("dilation", pair(dilation, count), [1] * count)
    size, stride, pads = _windows(x, size, stride, padding, ceil)
    return (_pooled(x, size, stride, pads, _LARGEST[count], float(tf.float32.min)),)


@computes("avg_pool1d", "avg_pool2d", "avg_pool3d")
def average_pool(
    x: tf.Tensor,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> tf.Tensor:
    """Return the mean of each window, or its sum over a divisor; elements that `ceil` adds to the padding never count."""
    count = len(x.shape) - 2
    size, stride, pads = _windows(x, size, stride, padding, ceil)
    result = _pooled(x, size, stride, pads, _MEAN[count], 0.0)
    if divisor is not None:
        return result * (prod(size) / divisor)
    padding = pair(padding, count) if count_padding else [0] * count
    if all(given == (p, p) for given, p in zip(pads, padding, strict=True)):
        return result
    ones = tf.pad(tf.ones_like(x[:1, :1]), [(0, 0), (0, 0), *((p, p) for p in padding)], constant_values=1.0)
    pads = [(low - p, high - p) for (low, high), p in zip(pads, padding, strict=True)]
    return result / _pooled(ones, size, stride, pads, _MEAN[count], 0.0)


def _windows(
    x: tf.Tensor, size: Any, stride: Any, padding: Any, ceil: bool
) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Return the sizes and strides of windows, and the pads before and after each axis.

    With `ceil`, a window may extend beyond the edge if it begins before the edge.
    """
    count = len(x.shape) - 2
    size, padding = pair(size, count), pair(padding, count)
    stride = pair(stride, count) if stride not in ((), [], None) else size
    pads = []
    for n, p, k, s in zip(x.shape[2:], padding, size, stride, strict=True):
        rest = (n + 2 * p - k) % s
        begins = n + 2 * p - k - rest + s < n + p
        pads.append((p, p + s - rest if ceil and rest and begins else p))
    return size, stride, pads


def _pooled(
    x: tf.Tensor,
    size: list[int],
    stride: list[int],
    pads: list[tuple[int, int]],
    pool: Callable[..., tf.Tensor],
    fill: float,
) -> tf.Tensor:
    image = last(x)
    if any(map(any, pads)):
        image = tf.pad(image, [(0, 0), *pads, (0, 0)], constant_values=fill)
    return first(pool(image, size, stride, "VALID"))


@computes("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_average_pool(x: tf.Tensor, size: Any) -> tf.Tensor:
    """Return the means over a given number of windows, which overlap if their number does not divide the axis."""
    return _adaptive(x, size, tf.reduce_mean)


@computes("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: tf.Tensor, size: Any) -> tuple[tf.Tensor]:
    """Return the largest values of a given number of windows."""
    return (_adaptive(x, size, tf.reduce_max),)


def _adaptive(x: tf.Tensor, size: Any, reduce: Callable[..., tf.Tensor]) -> tf.Tensor:
    spatial = x.shape.as_list()[2:]
    size = [n if s is None else s for s, n in zip(pair(size, len(spatial)), spatial, strict=True)]
    if any(n % s for n, s in zip(spatial, size, strict=True)):
        return _unequal(x, size, reduce)
    if all(s == 1 for s in size):
        return reduce(x, axis=list(range(2, len(x.shape))), keepdims=True)
    blocks = [part for n, s in zip(spatial, size, strict=True) for part in (s, n // s)]
    inner = list(range(3, 3 + 2 * len(spatial), 2))
    return reduce(tf.reshape(x, [*x.shape[:2], *blocks]), axis=inner)


def _unequal(x: tf.Tensor, size: list[int], reduce: Callable[..., tf.Tensor]) -> tf.Tensor:
    """Reduce axis by axis: window i of s over n elements spans `floor(i n / s)` to `ceil((i + 1) n / s)`."""
    for axis, count in enumerate(size, 2):
        n = x.shape[axis]
        before = [slice(None)] * axis
        if n == 1:
            x = tf.repeat(x, count, axis=axis)
        elif n != count:
            windows = [x[(*before, slice(i * n // count, -(-(i + 1) * n // count)))] for i in range(count)]
            x = tf.stack([reduce(window, axis=axis) for window in windows], axis=axis)
    return x
