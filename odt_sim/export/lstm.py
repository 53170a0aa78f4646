"""The loop of an LSTM, written for few and large ops: products without states at once, the gradient in closed form."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

Values = tuple[tf.Tensor, ...]


def with_lstm_loop(layer: keras.layers.RNN) -> Callable[..., Any]:
    """Return a recurrent layer's loop over its places: in training this module's where it computes the same.

    Elsewhere it is the layer's own, of which int8 files can be made.
    """
    own = layer.inner_loop

    def inner_loop(sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
        masked = any(given is not None for given in keras.tree.flatten(mask))
        if not training or masked or not _is_plain(layer):
            return own(sequences, initial_state, mask, training)
        return _loop(layer, sequences, initial_state)

    return inner_loop


def _is_plain(layer: keras.layers.RNN) -> bool:
    """Return whether a layer is Keras' LSTM with its usual activations and without dropout."""
    if type(layer) is not keras.layers.LSTM:
        return False
    cell = layer.cell
    usual = cell.activation is keras.activations.tanh and cell.recurrent_activation is keras.activations.sigmoid
    return usual and not (cell.dropout or cell.recurrent_dropout)


def _loop(layer: keras.layers.LSTM, sequences: tf.Tensor, states: list[tf.Tensor]) -> Any:
    """Return what Keras' loop returns: the last output, the outputs `[batch, places, units]`, and the states.

    Args:
        layer: The layer.
        sequences: `[batch, places, inputs]`.
        states: The initial output and carry, `[batch, units]` each.
    """
    cell = layer.cell
    x = tf.transpose(tf.reverse(sequences, [1]) if layer.go_backwards else sequences, [1, 0, 2])
    bias = cell.bias if cell.use_bias else tf.zeros([4 * cell.units])
    kernels = tf.convert_to_tensor(cell.kernel), tf.convert_to_tensor(cell.recurrent_kernel)
    first = [tf.expand_dims(state, 0) for state in states]
    run = tf.custom_gradient(lambda *given: _run(*given, every=layer.return_sequences))
    outputs, carry = run(x, *kernels, tf.convert_to_tensor(bias), *first)
    last = outputs[-1]
    return last, tf.transpose(outputs, [1, 0, 2]), [last, carry[0]]


def _run(
    x: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor,
    h: tf.Tensor,
    c: tf.Tensor,
    *,
    every: bool,
) -> tuple[Values, Callable[[tf.Tensor, tf.Tensor], Values]]:
    """Return the outputs, `[places, batch, units]`, the last carry, and the function of their gradients.

    Args:
        x: The inputs, `[places, batch, inputs]`.
        kernel: `[inputs, 4 * units]`; its columns belong to the input, forget and carry gates and to the output's.
        recurrent_kernel: `[units, 4 * units]`.
        bias: `[4 * units]`.
        h: The initial output, `[1, batch, units]`.
        c: The initial carry.
        every: Whether to return the outputs of all places; otherwise of the last alone.
    """
    places, _, inputs = x.shape
    units = recurrent_kernel.shape[0]
    x = tf.reshape(x, [1, -1, inputs])
    x = tf.concat([x, tf.ones_like(x[:, :, :1])], -1)
    u = tf.expand_dims(recurrent_kernel, 0)
    sums = tf.matmul(x, tf.expand_dims(tf.concat([kernel, tf.expand_dims(bias, 0)], 0), 0))
    outputs, kept = [h], []
    for own in tf.split(sums, places, 1):
        i, f, g, o = tf.split(own + tf.matmul(outputs[-1], u), 4, -1)
        i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
        entered, remembered = i * g, f * c
        c = entered + remembered
        t = tf.tanh(c)
        outputs.append(o * t)
        kept.append((i, f, g, o, t, entered, remembered, outputs[-1]))

    def gradients(of_outputs: tf.Tensor, of_carry: tf.Tensor) -> Values:
        *of_earlier, dh = tf.split(of_outputs, places) if every else [of_outputs]
        dc, of_sums = of_carry, list[tf.Tensor]()
        for i, f, g, o, t, entered, remembered, output in reversed(kept):
            dc = dc + dh * (o - output * t)
            of_gates = [
                dc * (entered - entered * i),
                dc * (remembered - remembered * f),
                dc * (i - entered * g),
                dh * (output - output * o),
            ]
            of_sums.append(tf.concat(of_gates, -1))
            dc = dc * f
            dh = tf.matmul(of_sums[-1], u, transpose_b=True)
            if of_earlier:
                dh = of_earlier.pop() + dh
        z = tf.concat(of_sums[::-1], 1)
        entering = tf.concat([x, tf.concat(outputs[:-1], 1)], -1)
        of_weights = tf.squeeze(tf.matmul(entering, z, transpose_a=True), 0)
        of_kernel, of_bias, of_recurrent = tf.split(of_weights, [inputs, 1, units])
        of_x = tf.reshape(tf.matmul(z, tf.expand_dims(kernel, 0), transpose_b=True), [places, -1, inputs])
        return of_x, of_kernel, of_recurrent, tf.squeeze(of_bias, 0), dh, dc

    return (tf.concat(outputs[1:], 0) if every else outputs[-1], c), gradients
