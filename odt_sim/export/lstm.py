"""The loop of an LSTM in few, fast ops: one product per time step and pass, and gradients in closed form."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

Values = tuple[tf.Tensor, ...]

ROWS = 8
"""The most examples that form the rows of matrices. XNNPACK multiplies by 16 columns at once, or by 8 on phones."""


def with_lstm_loop(layer: keras.layers.RNN) -> Callable[..., Any]:
    """Return a recurrent layer's loop over time steps: this module's loop in training, if it computes the same.

    Otherwise, it is the layer's loop, which can be quantized to int8.
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
    """Return the results of Keras' loop: the last output, the outputs `[batch, steps, units]`, and the states.

    Args:
        layer: The layer.
        sequences: `[batch, steps, inputs]`.
        states: The initial output and carry, each `[batch, units]`.
    """
    cell, batch = layer.cell, sequences.shape[0]
    layout = _Columns() if batch is None or batch > ROWS else _Rows()
    x = tf.transpose(tf.reverse(sequences, [1]) if layer.go_backwards else sequences, [1, 0, 2])
    bias = cell.bias if cell.use_bias else tf.zeros([4 * cell.units])
    weights = tf.concat([cell.recurrent_kernel, cell.kernel, tf.expand_dims(bias, 0)], 0)
    run = tf.custom_gradient(lambda *given: _run(*given, every=layer.return_sequences, layout=layout))
    outputs, carry = run(layout.turned(x), weights, *(layout.turned(tf.expand_dims(own, 0)) for own in states))
    last, carry = (tf.squeeze(layout.turned(own), 0) for own in (outputs[-1:], carry))
    return last, tf.transpose(layout.turned(outputs), [1, 0, 2]), [last, carry]


def _run(
    x: tf.Tensor, weights: tf.Tensor, h: tf.Tensor, c: tf.Tensor, *, every: bool, layout: "_Rows"
) -> tuple[Values, Callable[[tf.Tensor, tf.Tensor], Values]]:
    """Return the outputs, `[steps, *state]`, the last carry, `[1, *state]`, and their gradient function.

    Args:
        x: The inputs of the time steps.
        weights: The recurrent kernel, the kernel and the bias, `[units + inputs + 1, 4 * units]`; their columns belong to the
            input, forget, carry and output gates.
        h: The initial output.
        c: The initial carry.
        every: Whether to return the outputs of all time steps; otherwise only the last output.
        layout: Whether examples are the rows or the columns of states and inputs.
    """
    kernel = layout.kernel(weights)
    outputs, entering, factors = list[tf.Tensor](), list[tf.Tensor](), list[_Factors]()
    for own in tf.split(layout.with_ones(x), x.shape[0]):
        entering.append(tf.concat([h, own], layout.axis))
        h, c, of_place = _place(tf.split(layout.sums(kernel, entering[-1]), 4, layout.axis), c)
        outputs.append(h)
        factors.append(of_place)

    def gradients(of_outputs: tf.Tensor, of_carry: tf.Tensor) -> Values:
        of_each = tf.split(of_outputs, len(factors)) if every else [of_outputs]
        kernels = tf.expand_dims(weights[:-1], 0)
        of_sums, of_x, dh, dc = _backward(factors, kernels, of_each, of_carry, layout)
        return of_x, layout.of_weights(entering, of_sums), dh, dc

    return (tf.concat(outputs, 0) if every else h, c), gradients


class _Factors(NamedTuple):
    """The factors that turn gradients of a time step's results into gradients of its inputs, each shaped like a state.

    Attributes:
        carry: From the gradient of the carry to that of the previous carry.
        output: From the gradient of the output to that of the carry.
        gates: To the gradients of the four gates' sums: three from that of the carry, the last from that of the output.
    """

    carry: tf.Tensor
    output: tf.Tensor
    gates: Values


def _place(sums: Sequence[tf.Tensor], c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, _Factors]:
    """Return a time step's output, carry and gradient factors, given the gates' sums and the previous carry."""
    i, f, g, o = sums
    i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
    entered, remembered = i * g, f * c
    c = entered + remembered
    t = tf.tanh(c)
    h = o * t
    gates = entered - entered * i, remembered - remembered * f, i - entered * g, h - h * o
    return h, c, _Factors(f, o - h * t, gates)


def _backward(
    factors: Sequence[_Factors], kernels: tf.Tensor, of_outputs: list[tf.Tensor], dc: tf.Tensor, layout: "_Rows"
) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the gradients of each time step's sums, of the inputs, of the initial output and of the initial carry.

    Args:
        factors: The factors of each time step.
        kernels: The recurrent kernel and the kernel, `[1, units + inputs, 4 * units]`.
        of_outputs: The gradients of the outputs; only of the last output if no others are returned.
        dc: The gradient of the last carry.
        layout: The layout of states.
    """
    units = dc.shape[layout.axis]
    joint = layout.joint(units, kernels.shape[1] - units)
    left = kernels if joint else kernels[:, :units]
    *of_earlier, dh = of_outputs
    of_sums, of_x = list[tf.Tensor](), list[tf.Tensor]()
    for own in reversed(factors):
        dc = dc + dh * own.output
        *of_entering, of_leaving = own.gates
        of_sums.append(tf.concat([*(dc * factor for factor in of_entering), dh * of_leaving], layout.axis))
        dc = dc * own.carry
        dh = layout.of_entering(left, of_sums[-1])
        if joint:
            of_x.append(dh[:, units:])
            dh = dh[:, :units]
        dh = dh + of_earlier.pop() if of_earlier else dh
    of_sums.reverse()
    return of_sums, tf.concat(of_x[::-1], 0) if joint else layout.of_inputs(kernels[:, units:], of_sums), dh, dc


class _Rows:
    """The products of time steps in the layout `[1, batch, ...]` of states, inputs and gradients: examples are rows.

    Attributes:
        axis: The axis of units.
    """

    axis = 2

    def turned(self, x: tf.Tensor) -> tf.Tensor:
        """Convert values with examples as rows to this layout, or back."""
        return x

    def with_ones(self, x: tf.Tensor) -> tf.Tensor:
        """Return inputs with an additional input of 1, for the bias."""
        return tf.pad(x, [[0, int(axis == self.axis)] for axis in range(3)], constant_values=1.0)

    def kernel(self, weights: tf.Tensor) -> tf.Tensor:
        """Return weights `[units + inputs + 1, 4 * units]` in the layout for `sums`."""
        return tf.expand_dims(weights, 0)

    def sums(self, kernel: tf.Tensor, entering: tf.Tensor) -> tf.Tensor:
        """Return the sums of a time step's gates from its operands: the previous output, the inputs and 1."""
        return tf.matmul(entering, kernel)

    def joint(self, units: int, inputs: int) -> bool:
        """Return whether one product computes the gradients of both the previous output and the inputs."""
        return False

    def of_entering(self, kernels: tf.Tensor, of_sums: tf.Tensor) -> tf.Tensor:
        """Return the gradient of the operands that enter a time step through kernels `[1, ..., 4 * units]`."""
        return tf.matmul(of_sums, kernels, transpose_b=True)

    def of_inputs(self, kernel: tf.Tensor, of_sums: list[tf.Tensor]) -> tf.Tensor:
        """Return the gradient of the inputs of all time steps."""
        rows = tf.matmul(tf.concat(of_sums, 1), kernel, transpose_b=True)
        return tf.reshape(rows, [len(of_sums), -1, kernel.shape[1]])

    def of_weights(self, entering: list[tf.Tensor], of_sums: list[tf.Tensor]) -> tf.Tensor:
        """Return the gradient of the weights."""
        return tf.squeeze(tf.matmul(tf.concat(entering, 1), tf.concat(of_sums, 1), transpose_a=True), 0)


class _Columns(_Rows):
    """The products of time steps in the layout `[1, ..., batch]`: examples are columns.

    XNNPACK repacks the right operand of each product: here the states, which are smaller than the kernel.
    """

    axis = 1

    def turned(self, x: tf.Tensor) -> tf.Tensor:
        return tf.transpose(x, [0, 2, 1])

    def kernel(self, weights: tf.Tensor) -> tf.Tensor:
        return tf.expand_dims(tf.transpose(weights), 0)

    def sums(self, kernel: tf.Tensor, entering: tf.Tensor) -> tf.Tensor:
        return tf.matmul(kernel, entering)

    def joint(self, units: int, inputs: int) -> bool:
        # If inputs need no gradient, a separate product is removed, but a joint product still computes their rows.
        return 4 * inputs <= units

    def of_entering(self, kernels: tf.Tensor, of_sums: tf.Tensor) -> tf.Tensor:
        return tf.matmul(kernels, of_sums)

    def of_inputs(self, kernel: tf.Tensor, of_sums: list[tf.Tensor]) -> tf.Tensor:
        return tf.matmul(kernel, tf.concat(of_sums, 0))

    def of_weights(self, entering: list[tf.Tensor], of_sums: list[tf.Tensor]) -> tf.Tensor:
        # The sums are the right operand, because XNNPACK multiplies by up to 32 columns at once, which 4 * units fill.
        return tf.squeeze(tf.matmul(tf.concat(entering, 2), tf.concat(of_sums, 2), transpose_b=True), 0)
