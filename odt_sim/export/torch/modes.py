"""ATen ops that depend on the mode of layers: recurrent layers, unrolled over time, and random draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from odt_sim.export.torch import products
from odt_sim.export.torch.registry import Function

State = tuple[tf.Tensor, ...]
Drop = Callable[[tf.Tensor, float, bool], tf.Tensor]
"""Dropout, given the values, the rate, and whether the layer trains."""

Cell = Callable[[tf.Tensor, tf.Tensor, State], State]
"""A cell: given the products of input and previous output, with biases, and the state, it returns the new state.

The first part of a state is the output.
"""


def _lstm(x: tf.Tensor, h: tf.Tensor, state: State) -> State:
    i, f, g, o = tf.split(x + h, 4, -1)
    cell = tf.sigmoid(f) * state[1] + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(cell), cell


def _gru(x: tf.Tensor, h: tf.Tensor, state: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = tf.split(x, 3, -1), tf.split(h, 3, -1)
    z, new = tf.sigmoid(xz + hz), tf.tanh(xn + tf.sigmoid(xr + hr) * hn)
    return (new + z * (state[0] - new),)


def lstm(
    x: tf.Tensor, state: Sequence[tf.Tensor], weights: Sequence[tf.Tensor], *settings: Any, drop: Drop
) -> tuple[Any, ...]:
    """Return the outputs, and the last outputs and cells, of LSTM layers."""
    return _layers(_lstm, drop, x, list(state), weights, *settings)


def gru(x: tf.Tensor, state: tf.Tensor, weights: Sequence[tf.Tensor], *settings: Any, drop: Drop) -> tuple[Any, ...]:
    """Return the outputs, and the last outputs, of GRU layers."""
    return _layers(_gru, drop, x, [state], weights, *settings)


def rnn_tanh(
    x: tf.Tensor, state: tf.Tensor, weights: Sequence[tf.Tensor], *settings: Any, drop: Drop
) -> tuple[Any, ...]:
    """Return the outputs, and the last outputs, of simple recurrent layers."""
    return _layers(lambda x, h, _: (tf.tanh(x + h),), drop, x, [state], weights, *settings)


def rnn_relu(
    x: tf.Tensor, state: tf.Tensor, weights: Sequence[tf.Tensor], *settings: Any, drop: Drop
) -> tuple[Any, ...]:
    """Return the outputs, and the last outputs, of simple recurrent layers with ReLU."""
    return _layers(lambda x, h, _: (tf.nn.relu(x + h),), drop, x, [state], weights, *settings)


def _layers(
    cell: Cell,
    drop: Drop,
    x: tf.Tensor,
    initial: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> tuple[Any, ...]:
    """Run layers; each state in `initial` is `[layers x directions, batch, units]`."""
    time = 1 if batch_first else 0
    steps = tf.unstack(x, axis=time)
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    finals = []
    for layer in range(layers):
        if layer and dropout:
            steps = tf.unstack(drop(tf.stack(steps, axis=time), dropout, train), axis=time)
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            own = list(weights[place * each : (place + 1) * each])
            own_cell = _projected(cell, own.pop()) if each % 2 else cell  # an LSTM with proj_size
            results, final = _direction(own_cell, steps, tuple(s[place] for s in initial), own, reverse=direction == 1)
            outputs.append(results)
            finals.append(final)
        steps = [tf.concat(parts, -1) if len(parts) > 1 else parts[0] for parts in zip(*outputs, strict=True)]
    lasts = [tf.stack(parts) for parts in zip(*finals, strict=True)]
    return (tf.stack(steps, axis=time), *lasts)


def _projected(cell: Cell, weight: tf.Tensor) -> Cell:
    """Return a cell whose outputs are multiplied by a matrix (arXiv:1402.1128)."""

    def projected(x: tf.Tensor, h: tf.Tensor, state: State) -> State:
        output, *rest = cell(x, h, state)
        return (tf.matmul(output, weight, transpose_b=True), *rest)

    return projected


def _direction(
    cell: Cell, steps: Sequence[tf.Tensor], state: State, weights: Sequence[tf.Tensor], *, reverse: bool
) -> tuple[list[tf.Tensor], State]:
    w_x, w_h, b_x, b_h = (*weights, None, None)[:4]
    count, rows = len(steps), steps[0].shape[0]
    products = tf.matmul(tf.concat(list(steps), 0), w_x, transpose_b=True)  # one product for all steps
    inputs = tf.split(products if b_x is None else products + b_x, [rows] * count)
    outputs = []
    for x in reversed(inputs) if reverse else inputs:
        h = tf.matmul(state[0], w_h, transpose_b=True)
        state = cell(x, h if b_h is None else h + b_h, state)
        outputs.append(state[0])
    return outputs[::-1] if reverse else outputs, state


RECURRENT: dict[str, Function] = {"lstm": lstm, "gru": gru, "rnn_tanh": rnn_tanh, "rnn_relu": rnn_relu}
"""The function of each op; `drop` applies the dropout between layers."""


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
