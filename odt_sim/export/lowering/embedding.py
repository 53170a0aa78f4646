"""Writes to rows of a variable: the updates of an embedding, whose gradient is sparse."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("ResourceScatterAdd", "ResourceScatterSub")
def resource_scatter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes V = V + S or V - S, where row r of S is the sum of the updates whose index is r."""
    handle, indices, updates = inputs
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=updates.dtype)
    total = tf.math.unsorted_segment_sum(updates, indices, value.shape[0])
    changed = value + total if op.type == "ResourceScatterAdd" else value - total
    tf.raw_ops.AssignVariableOp(resource=handle, value=changed)
    return []
