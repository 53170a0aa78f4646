"""Reads of and writes to variables: a value that was read or written before is not read again.

Each read and each write splits XNNPACK's part of the graph, and values are copied in between.
"""

import tensorflow as tf

from odt_sim.export.lowering import creation
from odt_sim.export.lowering.control_flow import CHANGES
from odt_sim.export.lowering.registry import Memo, Value, lowers
from odt_sim.export.lowering.scattering import summed_rows


def current(handle: tf.Tensor, dtype: tf.DType, memo: Memo) -> tf.Tensor:
    """Return the value of a variable at this point of the function."""
    key = ("variable", handle.ref())
    if key not in memo:
        memo[key] = creation.read(handle, dtype)
    return memo[key]


def write(handle: tf.Tensor, value: tf.Tensor, memo: Memo) -> None:
    """Assign a variable."""
    memo["variable", handle.ref()] = value
    creation.assign(handle, value)


@lowers("ReadVariableOp")
def read_variable(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Return V."""
    return [current(inputs[0], op.outputs[0].dtype, memo)]


@lowers("VariableShape")
def variable_shape(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Return the shape of V, which is fixed."""
    (handle,) = inputs
    shape = tf.TensorShape(handle._handle_data.shape_and_type[0].shape) if handle.dtype == tf.resource else handle.shape
    return [tf.constant(shape.as_list(), op.outputs[0].dtype)]


@lowers("AssignVariableOp")
def assign(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute V = X."""
    handle, value = inputs
    write(handle, value, memo)
    return []


@lowers("AssignAddVariableOp", "AssignSubVariableOp")
def assign_change(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute V = V + X or V - X."""
    handle, change = inputs
    value = current(handle, op.inputs[1].dtype, memo)
    write(handle, CHANGES[op.type](value, change), memo)
    return []


@lowers("ResourceScatterAdd", "ResourceScatterSub")
def scatter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute V = V + S or V - S; row r of S is the sum of the updates with index r, as for an embedding."""
    handle, indices, updates = inputs
    value = current(handle, updates.dtype, memo)
    total = summed_rows(updates, indices, value.shape.as_list())
    write(handle, value + total if op.type == "ResourceScatterAdd" else value - total, memo)
    return []
