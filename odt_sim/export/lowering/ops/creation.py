"""Ops and constants, added to the current graph, and integers such as static shapes, computed at export.

TensorFlow's functions also convert and check their arguments, which takes two thirds of their time. Each constant is
added to a graph only once: otherwise, constants would be nearly half of a graph's ops.
"""

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.registry import Refusal, Value

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


_ATTRIBUTE = "_odt_sim_constants"


def shared(key: Hashable, make: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Return the tensor of a key in the current graph, created on first use; equal keys mean equal tensors."""
    graph = tf.compat.v1.get_default_graph()
    # Stored in the graph, to be freed with it: a dictionary by graph would keep all graphs, because tensors refer to them.
    if not hasattr(graph, _ATTRIBUTE):
        setattr(graph, _ATTRIBUTE, {})
    known = getattr(graph, _ATTRIBUTE)
    if key not in known:
        with graph.control_dependencies(None):
            known[key] = make()
    tensor: tf.Tensor = known[key]
    return tensor


def integers(values: Sequence[int]) -> tf.Tensor:
    """Return an int32 vector in the current graph."""
    key = tuple(values)
    return shared(key, lambda: tf.constant(key, tf.int32, [len(key)]))


def reshaped(x: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
    """Reshape a tensor to sizes, of which one may be -1; merge this with an earlier reshape of the tensor."""
    if x.shape.rank == len(sizes) and all(size in (-1, own) for own, size in zip(x.shape, sizes, strict=True)):
        return x
    if x.op.type == "Reshape":
        source = x.op.inputs[0]
        if source.shape.is_fully_defined() or not x.shape.is_fully_defined():  # else only `x` has all sizes
            return reshaped(source, sizes)
    attributes = {"T": type_attribute(x.dtype), "Tshape": type_attribute(tf.int32)}
    return created("Reshape", [x, integers(sizes)], [x.dtype], attributes)[0]


FOLDED = (tf.int32, tf.int64, tf.bool)  # types of shapes; a random generator's key is uint64

REMEMBERED = 256
"""The maximum size in bytes of inputs whose outputs are cached; enough for shapes."""

_results: dict[tuple[Any, ...], list[NDArray[Any]]] = {}


def known(tensor: tf.Tensor) -> NDArray[Any]:
    """Return the value of a tensor that depends only on constants."""
    value = tf.get_static_value(tensor)
    value = evaluated(tensor) if value is None else value
    if value is None:
        raise Refusal("depends on a shape or number that is not fixed; use fixed values")
    return np.asarray(value)


def copied(op: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """Add a traced op to the current graph, with its name and attributes, and return its outputs.

    Equal constants are added once.
    """
    attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}

    def copy() -> list[tf.Tensor]:
        return _copy(op, inputs, [t.dtype for t in op.outputs], attributes)

    if op.type != "Const":
        return copy()
    return [shared(attributes["value"].SerializeToString(), lambda: copy()[0])]


def copied_as_real(op: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """Add a traced op on complex numbers to the current graph, as an op on real numbers."""
    attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
    real = type_attribute(tf.float32)
    attributes = {
        name: real if value.type == tf.complex64.as_datatype_enum else value for name, value in attributes.items()
    }
    return _copy(op, inputs, [tf.float32 if t.dtype == tf.complex64 else t.dtype for t in op.outputs], attributes)


def _copy(
    op: tf.Operation, inputs: list[tf.Tensor], types: list[tf.DType], attributes: dict[str, Any]
) -> list[tf.Tensor]:
    return created(op.type, inputs, types, attributes, op.op_def, op.name)


def folded(op: tf.Operation, inputs: list[Value]) -> list[tf.Tensor] | None:
    """Return the integer or boolean outputs of an op as constants; None unless all of its inputs are constants."""
    if not inputs or not op.outputs or not all(t.dtype in FOLDED for t in op.outputs):
        return None
    if op.type in ("Shape", "ShapeN") and all(t.shape.is_fully_defined() for t in inputs):
        return [tf.constant(t.shape.as_list(), own.dtype) for t, own in zip(inputs, op.outputs, strict=True)]
    if op.type == "Rank" and inputs[0].shape.rank is not None:
        return [tf.constant(inputs[0].shape.rank, op.outputs[0].dtype)]
    if op.type == "Size" and inputs[0].shape.is_fully_defined():
        return [tf.constant(inputs[0].shape.num_elements(), op.outputs[0].dtype)]
    values = [tf.get_static_value(t) for t in inputs if t.dtype != tf.resource]
    constants = [np.asarray(value) for value in values if value is not None]
    if len(constants) < len(inputs):
        return None
    return [tf.constant(value, t.dtype) for value, t in zip(computed(op, constants), op.outputs, strict=True)]


def evaluated(tensor: tf.Tensor) -> NDArray[Any] | None:
    """Return the value of a tensor of any type that is computed only from constants; None for other tensors."""
    sources: set[str] = set()
    pending = [tensor.op]
    while pending:
        op = pending.pop()
        if op.type != "Const" and (not op.inputs or op.op_def.is_stateful or _opaque(op)):
            return None
        sources.add(op.name)
        pending += [t.op for t in op.inputs if t.op.name not in sources]
    return _evaluated(tensor, {})


def _opaque(op: tf.Operation) -> bool:
    return any(t.dtype in (tf.variant, tf.resource, tf.string) for t in op.outputs)


def _evaluated(tensor: tf.Tensor, known_outputs: dict[str, list[NDArray[Any]]]) -> NDArray[Any]:
    op = tensor.op
    if op.type == "Const":
        return np.asarray(tf.get_static_value(tensor))
    if op.name not in known_outputs:
        known_outputs[op.name] = computed(op, [_evaluated(t, known_outputs) for t in op.inputs])
    return known_outputs[op.name][int(tensor.value_index)]


def computed(op: tf.Operation, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Run one op in TensorFlow and return its outputs; equal ops with equal small inputs run once per process."""
    texts = any(value.dtype.hasobject for value in inputs)  # their bytes are addresses, which later texts may reuse
    if op.op_def.is_stateful or texts or sum(value.nbytes for value in inputs) > REMEMBERED:
        return _computed(op, inputs)
    attributes = sorted((name, value.SerializeToString()) for name, value in op.node_def.attr.items() if name[0] != "_")
    key = (op.type, *attributes, *((str(value.dtype), value.shape, value.tobytes()) for value in inputs))
    if key not in _results:
        _results[key] = _computed(op, inputs)
    return [value.copy() for value in _results[key]]


def _computed(op: tf.Operation, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    with tf.Graph().as_default() as graph:
        outputs = copied(op, [tf.constant(value, t.dtype) for value, t in zip(inputs, op.inputs, strict=True)])
        with tf.compat.v1.Session(graph=graph) as session:
            return [np.asarray(value) for value in session.run(outputs)]
