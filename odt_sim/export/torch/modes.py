"""ATen ops that depend on the mode of layers: recurrent layers, unrolled over time, and random draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from odt_sim.export.torch import products

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


def _layers(
    cell: Cell,
    drop: Drop,
    x: tf.Tensor,
    initial: Any,
    weights: Sequence[tf.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> tuple[Any, ...]:
    """Return the outputs and the last states of layers; each state in `initial` is `[layers x directions, batch, units]`."""
    initial = initial if isinstance(initial, list) else [initial]
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


CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": lambda x, h, _: (tf.tanh(x + h),),
    "rnn_relu": lambda x, h, _: (tf.nn.relu(x + h),),
}
"""The cell of each recurrent op."""


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


def _dropout(x: tf.Tensor, rate: float, train: bool, *, mode: Mode, channels: bool = False) -> tf.Tensor:
    draws = train and mode.training and rate > 0
    shape = _shape_of_draws(x, channels=channels)
    return keras.random.dropout(x, rate, noise_shape=shape, seed=mode.generator) if draws else x


def _shape_of_draws(x: tf.Tensor, *, channels: bool) -> tuple[int, ...]:
    """Return the shape of the draws for a tensor: one for each channel, or one for each value."""
    return (*x.shape[:2], *[1] * (len(x.shape) - 2)) if channels else tuple(x.shape)


def _drawn(
    draw: Callable[..., tf.Tensor], x: Any, first: float = 0.0, second: float = 1.0, *, mode: Mode, **_: Any
) -> tf.Tensor:
    """Return draws with two parameters of their distribution, in a shape or in that of a tensor."""
    return draw(tuple(x.shape if isinstance(x, tf.Tensor) else x), first, second, seed=mode.generator)


def _recurrent(cell: Cell, *given: Any, mode: Mode) -> tuple[Any, ...]:
    return _layers(cell, lambda x, rate, train: _dropout(x, rate, train, mode=mode), *given)


def _attention(*given: Any, mode: Mode, **settings: Any) -> tf.Tensor:
    return products.attention(*given, dropout=lambda x, rate: _dropout(x, rate, True, mode=mode), **settings)


def _drawn_exponential(x: tf.Tensor, rate: float = 1.0, *, mode: Mode) -> tf.Tensor:
    """Return draws of an exponential distribution, never 0: Gumbel-softmax takes their logarithm (arXiv:1611.01144)."""
    return -tf.math.log(keras.random.uniform(tuple(x.shape), 1e-7, 1.0, seed=mode.generator)) / rate + 1e-30


def _bernoulli(x: tf.Tensor, probability: Any = None, *, mode: Mode) -> tf.Tensor:
    """Return ones with a probability, otherwise zeros; used by stochastic depth."""
    drawn = keras.random.uniform(tuple(x.shape), seed=mode.generator)
    return tf.cast(drawn < tf.stop_gradient(x if probability is None else probability), x.dtype)


def _alpha_dropout(x: tf.Tensor, rate: float, train: bool, *, mode: Mode, channels: bool = False) -> tf.Tensor:
    """Return x with values replaced by SELU's limit at minus infinity, rescaled to its moments (arXiv:1706.02515)."""
    if not (train and mode.training and rate > 0):
        return x
    least = -1.7580993408473766
    drawn = keras.random.uniform(_shape_of_draws(x, channels=channels), seed=mode.generator)
    kept = tf.cast(drawn >= rate, x.dtype)
    scale = ((least**2 * rate + 1) * (1 - rate)) ** -0.5
    return scale * (x * kept + least * (1 - kept) - least * rate)


def _randomized_relu(
    x: tf.Tensor, low: float = 1 / 8, high: float = 1 / 3, train: bool = False, *_: Any, mode: Mode
) -> tf.Tensor:
    """Return x, negative values multiplied by a slope, which training draws for each value (arXiv:1505.00853)."""
    draws = train and mode.training
    slope = keras.random.uniform(tuple(x.shape), low, high, seed=mode.generator) if draws else (low + high) / 2
    return tf.where(x > 0, x, x * slope)


RANDOM: dict[str, Callable[..., tf.Tensor]] = {
    "dropout": _dropout,
    "feature_dropout": partial(_dropout, channels=True),
    "alpha_dropout": _alpha_dropout,
    "feature_alpha_dropout": partial(_alpha_dropout, channels=True),
    "bernoulli": _bernoulli,
    "rrelu": _randomized_relu,
    "scaled_dot_product_attention": _attention,
    "exponential": _drawn_exponential,
    **dict.fromkeys(("normal", "randn", "randn_like"), partial(_drawn, keras.random.normal)),
    **dict.fromkeys(("uniform", "rand", "rand_like"), partial(_drawn, keras.random.uniform)),
    **{name: partial(_recurrent, cell) for name, cell in CELLS.items()},
}
