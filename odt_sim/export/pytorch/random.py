"""ATen ops that draw random numbers while a module trains."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from odt_sim.export.pytorch import products
from odt_sim.export.pytorch.recurrent import RECURRENT
from odt_sim.export.pytorch.registry import Function


@dataclass(frozen=True)
class Mode:
    """The mode of layers.

    Attributes:
        training: Whether BatchNorm uses the batch's statistics, and Dropout is active.
        generator: A `keras.random.SeedGenerator` for random ops.
        sample_weight: `[batch]`, 0 for padding rows; None if all rows are real.
    """

    training: bool
    generator: Any
    sample_weight: tf.Tensor | None


def _dropout(x: tf.Tensor, rate: float, train: bool, *, mode: Mode) -> tf.Tensor:
    draws = train and mode.training and rate > 0
    return keras.random.dropout(x, rate, seed=mode.generator) if draws else x


def _channel_dropout(x: tf.Tensor, rate: float, train: bool, *, mode: Mode) -> tf.Tensor:
    shape = (*x.shape[:2], *[1] * (len(x.shape) - 2))
    draws = train and mode.training and rate > 0
    return keras.random.dropout(x, rate, noise_shape=shape, seed=mode.generator) if draws else x


def _attention(*given: Any, mode: Mode, **settings: Any) -> tf.Tensor:
    return products.attention(*given, dropout=lambda x, rate: _dropout(x, rate, True, mode=mode), **settings)


def _recurrent(function: Function) -> Function:
    return lambda *given, mode: function(*given, drop=lambda x, rate, train: _dropout(x, rate, train, mode=mode))


def _normal(x: Any, *_: Any, mode: Mode, **__: Any) -> tf.Tensor:
    return keras.random.normal(tuple(x.shape if isinstance(x, tf.Tensor) else x), seed=mode.generator)


def _uniform(x: Any, *_: Any, mode: Mode, **__: Any) -> tf.Tensor:
    return keras.random.uniform(tuple(x.shape if isinstance(x, tf.Tensor) else x), seed=mode.generator)


def _drawn_exponential(x: tf.Tensor, rate: float = 1.0, *, mode: Mode) -> tf.Tensor:
    """Return draws of an exponential distribution, never 0: Gumbel-softmax takes their logarithm (arXiv:1611.01144)."""
    return -tf.math.log(keras.random.uniform(tuple(x.shape), 1e-7, 1.0, seed=mode.generator)) / rate + 1e-30


def _drawn_normal(x: tf.Tensor, mean: float = 0.0, deviation: float = 1.0, *, mode: Mode) -> tf.Tensor:
    return keras.random.normal(tuple(x.shape), mean, deviation, seed=mode.generator)


def _drawn_uniform(x: tf.Tensor, low: float = 0.0, high: float = 1.0, *, mode: Mode) -> tf.Tensor:
    return keras.random.uniform(tuple(x.shape), low, high, seed=mode.generator)


def _bernoulli(x: tf.Tensor, probability: Any = None, *, mode: Mode) -> tf.Tensor:
    """Return ones with a probability, otherwise zeros; used by stochastic depth."""
    drawn = keras.random.uniform(tuple(x.shape), seed=mode.generator)
    return tf.cast(drawn < tf.stop_gradient(x if probability is None else probability), x.dtype)


def _alpha_dropout(x: tf.Tensor, rate: float, train: bool, *, mode: Mode, channels: bool = False) -> tf.Tensor:
    """Return x with values replaced by SELU's limit at minus infinity, rescaled to its moments (arXiv:1706.02515)."""
    if not (train and mode.training and rate > 0):
        return x
    least = -1.7580993408473766
    shape = (*x.shape[:2], *[1] * (len(x.shape) - 2)) if channels else tuple(x.shape)
    kept = tf.cast(keras.random.uniform(shape, seed=mode.generator) >= rate, x.dtype)
    scale = ((least**2 * rate + 1) * (1 - rate)) ** -0.5
    return scale * (x * kept + least * (1 - kept) - least * rate)


def _feature_alpha_dropout(x: tf.Tensor, rate: float, train: bool, *, mode: Mode) -> tf.Tensor:
    return _alpha_dropout(x, rate, train, mode=mode, channels=True)


def _randomized_relu(
    x: tf.Tensor, low: float = 1 / 8, high: float = 1 / 3, train: bool = False, *_: Any, mode: Mode
) -> tf.Tensor:
    """Return x, negative values multiplied by a slope, which training draws for each value (arXiv:1505.00853)."""
    draws = train and mode.training
    slope = keras.random.uniform(tuple(x.shape), low, high, seed=mode.generator) if draws else (low + high) / 2
    return tf.where(x > 0, x, x * slope)


RANDOM: dict[str, Callable[..., tf.Tensor]] = {
    "dropout": _dropout,
    "feature_dropout": _channel_dropout,
    "alpha_dropout": _alpha_dropout,
    "feature_alpha_dropout": _feature_alpha_dropout,
    "bernoulli": _bernoulli,
    "rrelu": _randomized_relu,
    "scaled_dot_product_attention": _attention,
    "exponential": _drawn_exponential,
    "normal": _drawn_normal,
    "uniform": _drawn_uniform,
    "randn": _normal,
    "randn_like": _normal,
    "rand": _uniform,
    "rand_like": _uniform,
    **{name: _recurrent(function) for name, function in RECURRENT.items()},
}
