"""ATen's recurrent layers, unrolled over time."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from odt_sim.export.pytorch.registry import Function

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
