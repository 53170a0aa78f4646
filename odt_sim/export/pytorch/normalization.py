"""ATen's normalizations."""

from math import prod
from typing import Any

import tensorflow as tf

from odt_sim.export.padding_rows import real_moments
from odt_sim.export.pytorch.registry import Refusal, computes


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
