"""Traces functions as their author wrote them."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.lowering import Trace
from odt_sim.export.parameters import all_layers

Function = Any
"""A `tf.types.experimental.ConcreteFunction`."""


def traced(
    function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec], layers: Collection[str]
) -> Trace:
    """Traces a function of tensors that returns named tensors.

    Args:
        function: The function; it takes the arguments by position.
        arguments: The specs of its arguments, with names.
        layers: The names of the model's layers, for messages.

    Raises:
        ExportError: TensorFlow or Keras failed to run it.
    """
    try:
        return Trace(concrete(function, arguments), layers)
    except (ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
        raise ExportError(f"`{function.__name__}` cannot be traced: {_line(error)}") from error


def _line(error: Exception) -> str:
    """Returns what an error says first; where Keras puts the call of a layer before that, both."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d+m", "", str(error)).splitlines() if line.strip()]
    line = " ".join(lines[: 1 + lines[0].startswith("Exception encountered when calling")]) if lines else ""
    loop = isinstance(error, tf.errors.OperatorNotAllowedInGraphError)
    return (
        f"{line.partition('. You can attempt')[0]}; use fixed numbers, or a Keras layer, in place of it"
        if loop
        else line
    )


def concrete(function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec]) -> Function:
    """Returns the graph of a function that takes its arguments by position."""
    return tf.function(function, input_signature=list(arguments), autograph=False).get_concrete_function()


def named(function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec]) -> Function:
    """Returns the graph of a function that takes any arguments by name."""
    return tf.function(function, autograph=False).get_concrete_function(**{spec.name: spec for spec in arguments})


@contextmanager
def unrolled(model: keras.Model) -> Iterator[None]:
    """Has a model's recurrent layers repeat their steps in the graph while it is traced; afterwards they are as before."""
    layers = [layer for layer in all_layers(model) if isinstance(layer, keras.layers.RNN)]
    before = [layer.unroll for layer in layers]
    for layer in layers:
        layer.unroll = True
    try:
        yield
    finally:
        for layer, unroll in zip(layers, before, strict=True):
            layer.unroll = unroll
