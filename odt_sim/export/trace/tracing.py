"""Trace functions of tensors as TensorFlow graphs."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.interface import one_line, reason
from odt_sim.export.keras.lstm import with_lstm_loop
from odt_sim.export.keras.parameters import all_layers
from odt_sim.export.keras.precision import in_float32
from odt_sim.export.lowering import Trace

Function = Any
"""A `tf.types.experimental.ConcreteFunction`."""


def traced(
    function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec], layers: Collection[str]
) -> Trace:
    """Trace a function of tensors that returns named tensors."""
    try:
        # Without an order of reads and writes: a trace lists its ops in order.
        return Trace(tf.compat.v1.wrap_function(lambda *values: function(*values), list(arguments)), layers)
    except (ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
        raise ExportError(f"`{function.__name__}` cannot be traced: {_reason(error, arguments)}") from error


def _reason(error: Exception, arguments: Sequence[tf.TensorSpec]) -> str:
    """Return an error as one line, with advice for a loop or a condition in Python."""
    if not isinstance(error, tf.errors.OperatorNotAllowedInGraphError):
        return reason(error, arguments)
    return f"{one_line(error).partition('. You can attempt')[0]}; use fixed numbers, or a Keras layer, instead"


def concrete(function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec]) -> Function:
    """Return the graph of a function with positional arguments."""
    return tf.function(function, input_signature=list(arguments), autograph=False).get_concrete_function()


def named(function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec]) -> Function:
    """Return the graph of a function with named arguments."""
    return tf.function(function, autograph=False).get_concrete_function(**{spec.name: spec for spec in arguments})


def unordered(function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec]) -> Function:
    """Return the graph of a function with named arguments, only for the converter.

    The graph does not order reads and writes: `converter_input` adds their order in a tenth of the time.
    """
    names = [spec.name for spec in arguments]
    return tf.compat.v1.wrap_function(
        lambda *values: function(**dict(zip(names, values, strict=True))), list(arguments)
    )


@contextmanager
def unrolled(model: keras.Model) -> Iterator[None]:
    """Unroll a model's recurrent layers while it is traced, and compute in float32, as LiteRT's kernels require."""
    recurrent = [layer for layer in all_layers(model) if isinstance(layer, keras.layers.RNN)]
    layers = [layer for layer in recurrent if "inner_loop" not in vars(layer)]  # an outer context unrolls the others
    before = [layer.unroll for layer in layers]
    backwards = [layer for layer in layers if layer.go_backwards]
    for layer in layers:
        layer.unroll = True
    for layer in backwards:
        layer.inner_loop = _forwards(layer)  # shadows the class's method
    for layer in layers:
        layer.inner_loop = with_lstm_loop(layer)
    try:
        with in_float32(model):
            yield
    finally:
        for layer in layers:
            del layer.inner_loop
        for layer, unroll in zip(layers, before, strict=True):
            layer.unroll = unroll


def _forwards(layer: Any) -> Callable[..., Any]:
    """Return the loop of a backwards layer that reverses the sequence and the mask first.

    Otherwise, an unrolled loop of Keras 3 with `zero_output_for_mask`, which Bidirectional sets, applies the unreversed mask
    to reversed outputs.
    """
    own = layer.inner_loop

    def inner_loop(sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
        mask = mask[0] if isinstance(mask, list | tuple) else mask
        if mask is None:
            return own(sequences, initial_state, mask, training)
        layer.go_backwards = False
        try:
            return own(tf.reverse(sequences, [1]), initial_state, tf.reverse(mask, [1]), training)
        finally:
            layer.go_backwards = True

    return inner_loop
