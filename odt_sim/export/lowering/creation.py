"""Ops with given attributes, added to the current graph.

TensorFlow's own functions also convert and check what they are given, which takes two thirds of their time.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

FIRST = "A_"
"""Begins the name of an op that runs before other users of its input, which may then end sooner: they are ordered by name."""

_CREATE = inspect.unwrap(tf.Graph.create_op)  # without a check for arguments out of use, which takes half of its time


def created(
    kind: str,
    inputs: Sequence[tf.Tensor],
    types: Sequence[tf.DType],
    attributes: Mapping[str, Any],
    definition: Any = None,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Add an op to the current graph and return its outputs.

    Args:
        kind: The type of the op.
        inputs: Its inputs, of the types that the op takes.
        types: The types of its outputs.
        attributes: Those without a default, as `AttrValue`s.
        definition: Its `OpDef`; None to look it up.
        name: Its name; None for its type.
    """
    graph = tf.compat.v1.get_default_graph()
    return list(_CREATE(graph, kind, inputs, types, attrs=attributes, op_def=definition, name=name).outputs)


def type_attribute(dtype: tf.DType) -> Any:
    """Return a type as the value of an attribute."""
    return tf.compat.v1.AttrValue(type=dtype.as_datatype_enum)


def read(handle: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Read a variable."""
    return created("ReadVariableOp", [handle], [dtype], {"dtype": type_attribute(dtype)})[0]


def assign(handle: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    """Assign a variable; return the op."""
    graph = tf.compat.v1.get_default_graph()
    attributes = {"dtype": type_attribute(value.dtype)}
    return _CREATE(graph, "AssignVariableOp", [handle, value], [], attrs=attributes)
