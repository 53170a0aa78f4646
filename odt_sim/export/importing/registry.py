"""The functions that import ops, by kind of op, and the import of Flex ops, each of which contains its TensorFlow op."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from odt_sim.export.lowering.ops.creation import folded
from odt_sim.export.lowering.registry import Refusal

Value = Any
"""A `tf.Tensor`, a `tf.Variable` (for its handle), a `TensorList`, or None for an omitted input."""

_ACTIVATIONS = schema.ActivationFunctionType


@dataclass(frozen=True)
class Operator:
    """An op of a `.tflite` file.

    Attributes:
        kind: The name of a built-in op, such as `CONV_2D`, or of a Flex op, such as `FlexReluGrad`.
        options: The op's options, with the names of the schema.
        node: The serialized NodeDef of a Flex op; empty for other ops.
        inputs: The imported inputs.
        dtypes: The types of the outputs.
        variables: The variables whose handles the op outputs, by output.
        state: The state of a random op; None for other ops.
        run: Imports a subgraph with the given inputs and returns its outputs.
    """

    kind: str
    options: SimpleNamespace
    node: bytes
    inputs: list[Value]
    dtypes: list[tf.DType]
    variables: Mapping[int, tf.Variable]
    state: tf.Variable | None
    run: Callable[[int, Sequence[Value]], list[Value]]


Import = Callable[[Operator], list[Value]]
"""A function that emits TensorFlow ops for an op into the current graph and returns the outputs."""

IMPORTS: dict[str, Import] = {}


def imports(*kinds: str) -> Callable[[Import], Import]:
    """Register a function that imports the given kinds of ops."""

    def register(function: Import) -> Import:
        IMPORTS.update(dict.fromkeys(kinds, function))
        return function

    return register


def activated(operator: Operator, value: tf.Tensor) -> tf.Tensor:
    """Apply the activation that is fused into an op to a value."""
    function = getattr(operator.options, "fusedActivationFunction", _ACTIVATIONS.NONE)
    if function == _ACTIVATIONS.NONE:
        return value
    if function == _ACTIVATIONS.RELU:
        return tf.nn.relu(value)
    if function == _ACTIVATIONS.RELU6:
        return tf.nn.relu6(value)
    if function == _ACTIVATIONS.RELU_N1_TO_1:
        return tf.maximum(tf.minimum(value, 1.0), -1.0)
    if function == _ACTIVATIONS.TANH:
        return tf.tanh(value)
    raise Refusal(f"has the unknown fused activation number {function}")


def fixed(value: tf.Tensor) -> np.ndarray[Any, Any]:
    """Return the value of an input that must be a constant."""
    constant = tf.get_static_value(value)
    if constant is None:
        raise Refusal("has a computed input that must be a constant")
    return np.asarray(constant)


def node_of(serialized: bytes) -> tf.compat.v1.NodeDef:
    """Return a deserialized NodeDef."""
    definition = tf.compat.v1.NodeDef()
    definition.ParseFromString(serialized)
    return definition


def emitted(node: bytes, inputs: Sequence[Any]) -> list[tf.Tensor]:
    """Emit the op of a serialized NodeDef into the current graph and return its outputs."""
    own = node_of(node)
    own.name, own.device = "op", ""
    own.input[:] = [f"input_{i}" for i in range(len(inputs))]
    for name in [name for name in own.attr if name.startswith("_") or name in ("_output_shapes", "_class")]:
        del own.attr[name]
    graph = tf.compat.v1.GraphDef(node=[own])
    given = {f"input_{i}": _tensor(value) for i, value in enumerate(inputs)}
    try:
        (op,) = tf.graph_util.import_graph_def(graph, given, ["op"], name=own.op)
    except ValueError as error:
        line = str(error).strip().partition("\n")[0]
        raise Refusal(f"cannot be imported ({line})") from error
    return folded(op, list(op.inputs)) or list(op.outputs)


def _tensor(value: Any) -> tf.Tensor:
    """Return an input as a tensor of the current graph; a variable is represented by its handle."""
    if isinstance(value, tf.Variable):
        return tf.compat.v1.get_default_graph().capture(value.handle)
    if not isinstance(value, tf.Tensor):
        raise Refusal("takes a list of tensors, or an optional input that is omitted")
    return value
