"""Updates of some rows of tensors, products with sparse matrices, and reads of and writes to variables.

A value of a variable that was read or written before is not read again: each read and each write splits XNNPACK's part of
the graph, and values are copied in between.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.ops import creation
from odt_sim.export.lowering.ops.control_flow import CHANGES
from odt_sim.export.lowering.ops.creation import copied, evaluated, integers, known, reshaped
from odt_sim.export.lowering.registry import Memo, Refusal, Value, computes, lowers

GATHERS = ("GatherV2", "ResourceGather")


def _shape(x: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    return tf.shape(x, out_type=indices.dtype)


def summed_rows(rows: tf.Tensor, indices: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Return Y of a given shape: Y[i] is the sum of the rows with index i, added in their order, or 0 if there are none.

    UNSORTED_SEGMENT_SUM computes the same sums, but LiteRT allocates its output in each call and runs the following ops by
    slower kernels.

    Args:
        rows: The rows, `[..., *shape[1:]]`.
        indices: The index of each row, integers in `[0, shape[0])`.
        shape: The shape of Y, which is fixed.
    """
    column = reshaped(tf.cast(indices, tf.int32), [-1, 1])
    return tf.scatter_nd(column, reshaped(rows, [-1, *shape[1:]]), integers(shape))


@lowers("UnsortedSegmentSum")
def unsorted_segment_sum(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y[i] = the sum of the rows with index i, as for an embedding's gradient; negative indices are ignored."""
    rows, indices, count = inputs
    shape = tf.TensorShape([tf.get_static_value(count)]).concatenate(rows.shape[indices.shape.rank :])
    if rows.dtype == tf.float32 and shape.is_fully_defined() and _are_in_range(op.inputs[1]):
        return [summed_rows(rows, indices, shape.as_list())]
    return copied(op, inputs)


def _are_in_range(indices: tf.Tensor) -> bool:
    """Return whether no index can be negative, because a gather uses the indices, or they are constants."""
    if any(user.type in GATHERS and user.inputs[1] is indices for user in indices.consumers()):
        return True
    if indices.op.type == "ConcatV2":
        return all(_are_in_range(part) for part in indices.op.inputs[:-1])
    if indices.op.type in ("Reshape", "Identity", "Cast"):
        return _are_in_range(indices.op.inputs[0])
    value = evaluated(indices)
    return value is not None and bool((value >= 0).all())


@computes("TensorScatterUpdate")
def tensor_scatter_update(x: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """Compute Y = X with the updates at their indices, which must be unique."""
    written = tf.scatter_nd(indices, tf.ones_like(updates), _shape(x, indices))
    return tf.where(tf.equal(written, 0), x, tf.scatter_nd(indices, updates, _shape(x, indices)))


@computes("TensorScatterAdd")
def tensor_scatter_add(x: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """Compute Y = X plus the updates at their indices."""
    return x + tf.scatter_nd(indices, updates, _shape(x, indices))


@computes("TensorScatterSub")
def tensor_scatter_sub(x: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """Compute Y = X minus the updates at their indices."""
    return x - tf.scatter_nd(indices, updates, _shape(x, indices))


@lowers("SparseTensorDenseMatMul")
def sparse_matmul(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute C = A B for a sparse A: row i of C sums A[i, j] B[j] over the entries of A."""
    indices, values, shape, b = inputs
    b = tf.transpose(b) if op.get_attr("adjoint_b") else b
    to, of = (1, 0) if op.get_attr("adjoint_a") else (0, 1)
    entries = tf.cast(indices, tf.int32)
    rows = tf.expand_dims(values, 1) * tf.gather(b, entries[:, of])
    return [tf.math.unsorted_segment_sum(rows, entries[:, to], int(known(shape)[to]))]


@lowers("DynamicStitch")
def dynamic_stitch(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the slices of several tensors at their indices; the last slice of a repeated index is used."""
    count = len(inputs) // 2
    indices = np.concatenate([known(t).reshape(-1) for t in inputs[:count]])
    shape = op.outputs[0].shape[1:]
    rows = tf.concat([reshaped(t, [-1, *shape]) for t in inputs[count:]], 0)
    last = {int(index): i for i, index in enumerate(indices)}
    if sorted(last) != list(range(len(last))):
        raise Refusal("leaves positions empty; give an index for each")
    return [tf.gather(rows, [last[index] for index in sorted(last)])]


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
