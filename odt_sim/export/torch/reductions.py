"""ATen ops that reduce axes or normalize over them."""

from collections.abc import Callable
from math import inf, prod
from typing import Any

import tensorflow as tf

from odt_sim.export.keras.padding_rows import real_moments
from odt_sim.export.torch.elementwise import alike
from odt_sim.export.torch.registry import OPS, Refusal, axes_of, computes, over_last

_PLAIN: dict[str, Callable[..., tf.Tensor]] = {
    "amax": tf.reduce_max, "amin": tf.reduce_min, "any": tf.reduce_any, "all": tf.reduce_all,
    "logsumexp": tf.reduce_logsumexp, "mean": tf.reduce_mean, "prod": tf.reduce_prod, "sum": tf.reduce_sum,
}  # fmt: skip


def _reduce(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    def reduced(x: tf.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: tf.DType | None = None) -> tf.Tensor:
        x = x if dtype is None else tf.cast(x, dtype)
        x = tf.cast(x, tf.bool) if function in (tf.reduce_any, tf.reduce_all) else counted(x)
        return function(x, axis=axes_of(dim, len(x.shape)), keepdims=keepdim)

    return reduced


def counted(x: tf.Tensor) -> tf.Tensor:
    """Return a tensor with integers instead of booleans, as PyTorch adds and multiplies them."""
    return tf.cast(x, tf.int32) if x.dtype == tf.bool else x


OPS.update({name: _reduce(function) for name, function in _PLAIN.items()})


@computes("max", "min")
def largest(x: tf.Tensor, dim: Any = None, keepdim: bool = False, *, least: bool = False) -> Any:
    """Return the largest value; along an axis, also its position; for two tensors, the elementwise maximum."""
    reduce, position = (tf.reduce_min, tf.argmin) if least else (tf.reduce_max, tf.argmax)
    if dim is None:
        return tf.cast(reduce(counted(x)), x.dtype)
    if isinstance(dim, tf.Tensor):
        return (tf.minimum if least else tf.maximum)(*alike(x, dim))
    x, kind = counted(x), x.dtype
    place = position(x, axis=dim, output_type=tf.int32)
    return tf.cast(reduce(x, axis=dim, keepdims=keepdim), kind), tf.expand_dims(place, dim) if keepdim else place


OPS["min"] = lambda x, dim=None, keepdim=False: largest(x, dim, keepdim, least=True)


@computes("argmax", "argmin")
def argmax(x: tf.Tensor, dim: int | None = None, keepdim: bool = False) -> tf.Tensor:
    """Return the position of the largest value."""
    flat = tf.reshape(x, [-1]) if dim is None else x
    place = tf.argmax(flat, axis=dim or 0, output_type=tf.int32)
    return tf.expand_dims(place, dim) if keepdim and dim is not None else place


OPS["argmin"] = lambda x, dim=None, keepdim=False: argmax(-x, dim, keepdim)


@computes("var")
def variance(
    x: tf.Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: float | None = None
) -> tf.Tensor:
    """Return the variance, by default unbiased."""
    axes = axes_of(None if isinstance(dim, bool) else dim, len(x.shape))
    if isinstance(dim, bool):
        unbiased = dim
    less = correction if correction is not None else 0 if unbiased is False else 1
    count = float(prod(x.shape[a] for a in axes))
    centered = tf.square(x - tf.reduce_mean(x, axis=axes, keepdims=True))
    return tf.reduce_sum(centered, axis=axes, keepdims=keepdim) / (count - less)


@computes("var_mean")
def variance_and_mean(
    x: tf.Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the variance, by default unbiased, and the mean."""
    axes = axes_of(None if isinstance(dim, bool) else dim, len(x.shape))
    mean = tf.reduce_mean(x, axis=axes, keepdims=keepdim)
    return variance(x, dim, unbiased, keepdim, correction=correction), mean


@computes("cumsum")
def cumsum(x: tf.Tensor, dim: int, *, dtype: tf.DType | None = None) -> tf.Tensor:
    """Return the running sum along an axis."""
    return tf.cumsum(counted(x) if dtype is None else tf.cast(x, dtype), axis=dim)


@computes("cumprod")
def cumprod(x: tf.Tensor, dim: int, *, dtype: tf.DType | None = None) -> tf.Tensor:
    """Return the running product along an axis."""
    return tf.math.cumprod(counted(x) if dtype is None else tf.cast(x, dtype), axis=dim)


@computes("softmax", "_softmax", "_safe_softmax")
def softmax(x: tf.Tensor, dim: int, *_: Any, **__: Any) -> tf.Tensor:
    """Return the softmax over an axis."""
    return over_last(tf.nn.softmax, x, dim)


@computes("log_softmax", "_log_softmax")
def log_softmax(x: tf.Tensor, dim: int, *_: Any, **__: Any) -> tf.Tensor:
    """Return the logarithm of the softmax over an axis."""
    return over_last(tf.nn.log_softmax, x, dim)


@computes("linalg_vector_norm", "norm")
def vector_norm(
    x: tf.Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> tf.Tensor:
    """Return a norm over axes, of any order except 0; the gradient at 0 is 0."""
    order, axes, sizes = float(2 if order in (None, "fro") else order), axes_of(dim, len(x.shape)), tf.abs(x)
    if order == 0:
        raise Refusal("has ord=0, whose gradient is 0; count by (x != 0).sum()")
    if abs(order) == inf:
        return (tf.reduce_max if order > 0 else tf.reduce_min)(sizes, axis=axes, keepdims=keepdim)
    if order == 1:
        return tf.reduce_sum(sizes, axis=axes, keepdims=keepdim)
    powers = tf.square(x) if order == 2 else _of_positive(lambda own: tf.pow(own, order), sizes)
    summed = tf.reduce_sum(powers, axis=axes, keepdims=keepdim)
    return _of_positive(tf.sqrt if order == 2 else lambda own: tf.pow(own, 1 / order), summed)


def _of_positive(function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """Return a function of positive numbers, and 0 with a gradient of 0 for all others."""
    positive = x > 0
    return tf.where(positive, function(tf.where(positive, x, tf.ones_like(x))), tf.zeros_like(x))


@computes("cdist")
def distances(x: tf.Tensor, y: tf.Tensor, order: float = 2, *_: Any) -> tf.Tensor:
    """Return the distances of all pairs of rows, `[..., rows of x, rows of y]`."""
    return vector_norm(x[..., :, None, :] - y[..., None, :, :], order, -1)


@computes("topk")
def topk(x: tf.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[tf.Tensor, ...]:
    """Return the k largest or smallest values along an axis, in order, and their positions."""
    rank = len(x.shape)
    dim %= rank
    order = [*(d for d in range(rank) if d != dim), dim]
    back = [order.index(d) for d in range(rank)]
    values, places = tf.math.top_k(tf.transpose(x, order) * (1 if largest else -1), k)
    return tf.transpose(values * (1 if largest else -1), back), tf.transpose(places, back)


@computes("kthvalue")
def kth_value(x: tf.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[tf.Tensor, ...]:
    """Return the k-th smallest value along an axis, and its position."""
    found = [part[(*[slice(None)] * (dim % len(x.shape)), k - 1)] for part in sort(x, dim)]
    return tuple(tf.expand_dims(part, dim) for part in found) if keepdim else tuple(found)


@computes("median")
def median(x: tf.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the median, or the lower of two medians; along an axis, also its position."""
    if dim is None:
        return median(tf.reshape(x, [-1]), 0)[0]
    return kth_value(x, (int(x.shape[dim]) + 1) // 2, dim, keepdim)


@computes("sort")
def sort(x: tf.Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[tf.Tensor, ...]:
    """Return the values along an axis in order, and their positions; equal values keep their order."""
    ordered: tuple[tf.Tensor, ...] = topk(x, int(x.shape[dim]), dim, largest=descending)
    return ordered


def _scaled(x: tf.Tensor, weight: tf.Tensor | None, bias: tf.Tensor | None, shape: list[int]) -> tf.Tensor:
    x = x if weight is None else x * tf.reshape(weight, shape)
    return x if bias is None else x + tf.reshape(bias, shape)


def _normalized(x: tf.Tensor, axes: list[int], eps: float) -> tf.Tensor:
    mean = tf.reduce_mean(x, axis=axes, keepdims=True)
    centered = x - mean
    return centered * tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=axes, keepdims=True) + eps)


@computes("layer_norm")
def layer_norm(x: tf.Tensor, shape: list[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    """Normalize over the last axes (arXiv:1607.06450)."""
    return _scaled(_normalized(x, list(range(-len(shape), 0)), eps), weight, bias, list(shape))


@computes("rms_norm")
def rms_norm(x: tf.Tensor, shape: list[int], weight: Any = None, eps: float | None = None) -> tf.Tensor:
    """Divide by the root of the mean square over the last axes (arXiv:1910.07467)."""
    eps = 1.1920928955078125e-07 if eps is None else eps  # the machine epsilon of float32, PyTorch's default
    squares = tf.reduce_mean(tf.square(x), axis=list(range(-len(shape), 0)), keepdims=True)
    return _scaled(x * tf.math.rsqrt(squares + eps), weight, None, list(shape))


@computes("group_norm")
def group_norm(x: tf.Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    """Normalize over groups of channels (arXiv:1803.08494)."""
    channels = [1, x.shape[1], *[1] * (len(x.shape) - 2)]
    parts = tf.reshape(x, [x.shape[0], groups, -1])
    return _scaled(tf.reshape(_normalized(parts, [2], eps), x.shape), weight, bias, channels)


@computes("instance_norm")
def instance_norm(
    x: tf.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, by_input: bool, momentum: float, eps: float, *_: Any
) -> tf.Tensor:
    """Normalize each channel of each example (arXiv:1607.08022)."""
    if mean is not None:
        raise Refusal(
            "keeps running statistics, which a file supports only for BatchNorm; set track_running_stats=False"
        )
    channels = [1, x.shape[1], *[1] * (len(x.shape) - 2)]
    return _scaled(_normalized(x, list(range(2, len(x.shape))), eps), weight, bias, channels)


@computes("_weight_norm")
def weight_norm(v: tf.Tensor, g: tf.Tensor, dim: int = 0) -> tf.Tensor:
    """Return `g v / |v|`, with the norm over all axes except `dim` (arXiv:1602.07868)."""
    axes = [axis for axis in range(len(v.shape)) if axis != dim]
    return v * (g * tf.math.rsqrt(tf.reduce_sum(tf.square(v), axis=axes, keepdims=True)))


def batch_norm(
    x: tf.Tensor,
    weight: tf.Tensor | None,
    bias: tf.Tensor | None,
    statistics: tuple[Any, Any] | None,
    momentum: float,
    eps: float,
    *,
    by_batch: bool,
    sample_weight: tf.Tensor | None,
) -> tf.Tensor:
    """Normalize by the statistics of the batch, or by the running statistics (arXiv:1502.03167).

    The running variance is unbiased, as in PyTorch.

    Args:
        x: `[batch, channels, ...]`.
        weight: `[channels]` scale, or None.
        bias: `[channels]` shift, or None.
        statistics: The variables of the running mean and variance; None if the layer keeps none.
        momentum: The share of the batch in the running statistics.
        eps: A number that is added to the variance.
        by_batch: Whether to use and record the batch's statistics.
        sample_weight: `[batch]`, 0 for padding rows, which do not count; None if all rows are real.
    """
    axes, channels = [0, *range(2, len(x.shape))], [1, x.shape[1], *[1] * (len(x.shape) - 2)]
    if by_batch:
        rows = tf.ones([x.shape[0]]) if sample_weight is None else sample_weight
        mean, variance = real_moments(x, axes, rows)
        if statistics is not None:
            count = tf.reduce_sum(tf.cast(tf.not_equal(rows, 0.0), x.dtype)) * float(prod(x.shape[2:]))
            _record(statistics, (mean, variance * (count / tf.maximum(count - 1.0, 1.0))), momentum)
    else:
        mean, variance = (running.value for running in statistics or ())
    normalized = (x - tf.reshape(mean, channels)) * tf.reshape(tf.math.rsqrt(variance + eps), channels)
    return _scaled(normalized, weight, bias, channels)


def _record(statistics: tuple[Any, Any], batch: tuple[tf.Tensor, tf.Tensor], momentum: float) -> None:
    for running, value in zip(statistics, batch, strict=True):
        running.assign(running.value * (1 - momentum) + tf.stop_gradient(value) * momentum)
