"""Flex ops, each of which contains its TensorFlow op as a NodeDef."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import folded
from odt_sim.export.lowering.registry import Refusal


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
