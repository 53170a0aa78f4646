"""Ops with given attributes, added to the current graph.

TensorFlow's functions also convert and check their arguments, which takes two thirds of their time.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

FIRST = "A_"
"""Name prefix of an op that runs before other users of its input, which may then be freed sooner: names order the users."""

_CREATE = inspect.unwrap(tf.Graph.create_op)  # without the check for deprecated arguments, half of its time


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
        inputs: The op's inputs, of the types that it expects.
        types: The types of the op's outputs.
        attributes: The attributes without a default, as `AttrValue`s.
        definition: The op's `OpDef`; None to look it up.
        name: The op's name; None to use its type.
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
