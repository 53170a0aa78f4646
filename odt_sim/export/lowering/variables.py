"""Reads of and writes to variables: a value that was read or written before is not read again.

Each read and each write splits XNNPACK's part of the graph, and values are copied in between.
"""

from typing import Any

import tensorflow as tf

from odt_sim.export.lowering import creation
from odt_sim.export.lowering.control_flow import CHANGES
from odt_sim.export.lowering.registry import Memo, Value, lowers, tensor_of
from odt_sim.export.lowering.row_blocks import BlockedVariable, RowBlocks, block_of, in_blocks
from odt_sim.export.lowering.scattering import summed_rows

WAITING = "writes in blocks"
"""The memo key of the variables that `write_blocks` writes: their handles and values by the handles' keys."""


def current(handle: Any, dtype: tf.DType, memo: Memo) -> Value:
    """Return the value of a variable at this point of the function."""
    key = ("variable", handle.ref())
    if key not in memo:
        blocked = isinstance(handle, BlockedVariable)
        memo[key] = handle.read() if blocked else creation.read(handle, dtype)
    return memo[key]


def write(handle: Any, value: Value, memo: Memo) -> None:
    """Assign a variable; a variable or value in blocks is assigned later, by `write_blocks`."""
    memo["variable", handle.ref()] = value
    waiting = memo.setdefault(WAITING, {})
    waiting.pop(handle.ref(), None)
    if isinstance(handle, BlockedVariable) or isinstance(value, RowBlocks):
        waiting[handle.ref()] = (handle, value)
    else:
        creation.assign(handle, tensor_of(value))


def write_blocks(memo: Memo) -> None:
    """Assign the variables in blocks, completing the computations of each block before the next block is read."""
    waiting, graph = list(memo.pop(WAITING, {}).values()), tf.compat.v1.get_default_graph()
    for rows in dict.fromkeys(_rows(handle, value) for handle, value in waiting):
        own = [(handle, value) for handle, value in waiting if _rows(handle, value) == rows]
        last: list[tf.Operation] = []
        for i in range(len(rows)):
            with graph.control_dependencies(last):
                blocks = [block_of(value, i, rows) for _, value in own]
            last = [block.op for block in blocks]
            with graph.control_dependencies(last):
                assigned = [(handle, block) for (handle, _), block in zip(own, blocks, strict=True)]
                last += [creation.assign(h.blocks[i].handle, b) for h, b in assigned if isinstance(h, BlockedVariable)]
    for handle, value in waiting:
        if not isinstance(handle, BlockedVariable):
            creation.assign(handle, tensor_of(value))


def _rows(handle: Any, value: Value) -> tuple[int, ...]:
    rows: tuple[int, ...] = (handle if isinstance(handle, BlockedVariable) else value).rows
    return rows


@lowers("ReadVariableOp")
def read_variable(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Return V."""
    return [current(inputs[0], op.outputs[0].dtype, memo)]


@lowers("VariableShape")
def variable_shape(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Return the shape of V, which is fixed."""
    (handle,) = inputs
    if isinstance(handle, BlockedVariable):
        return [tf.constant([sum(handle.rows), handle.width], op.outputs[0].dtype)]
    shape = tf.TensorShape(handle._handle_data.shape_and_type[0].shape) if handle.dtype == tf.resource else handle.shape
    return [tf.constant(shape.as_list(), op.outputs[0].dtype)]


@lowers("AssignVariableOp", deferred=True)
def assign(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute V = X."""
    handle, value = inputs
    write(handle, value if isinstance(value, RowBlocks) else tensor_of(value), memo)
    return []


@lowers("AssignAddVariableOp", "AssignSubVariableOp", deferred=True)
def assign_change(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute V = V + X or V - X."""
    handle, change = inputs
    value = current(handle, op.inputs[1].dtype, memo)
    write(handle, in_blocks(CHANGES[op.type], value, change), memo)
    return []


@lowers("ResourceScatterAdd", "ResourceScatterSub")
def scatter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute V = V + S or V - S; row r of S is the sum of the updates with index r, as for an embedding."""
    handle, indices, updates = inputs
    value = tensor_of(current(handle, updates.dtype, memo))
    total = summed_rows(updates, indices, value.shape.as_list())
    write(handle, value + total if op.type == "ResourceScatterAdd" else value - total, memo)
    return []
