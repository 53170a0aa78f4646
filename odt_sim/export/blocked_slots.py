"""Choose the optimizer slots to store in blocks of rows: large ones that a step updates elementwise.

See `odt_sim.export.lowering.row_blocks`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.control_flow import READS
from odt_sim.export.lowering.row_blocks import ASSIGNS, MAPPED, BlockedVariable

SMALLEST = 1 << 21
"""Bytes of the smallest slot to split; smaller slots fit the caches."""
BLOCK = 1 << 18
"""Bytes of a block: together with the blocks of the weights, other slots and gradient, it fits a core's cache."""
HEAD = "head_train"
"""A file with this step has no blocks, because `odt_sim.model.head_file` expects each variable as one array."""
MOST = 50
"""The maximum number of blocks per slot: each adds ops for its update to the file."""


def blocked_slots(
    slots: Mapping[int, tf.Variable], traces: Mapping[str, Trace], operations: Mapping[str, list[tf.Operation]]
) -> dict[int, Any]:
    """Return slots by handle id; slots that are faster in blocks become a `BlockedVariable`."""
    if HEAD in traces:
        return dict(slots)
    return {
        key: _in_blocks(slot) if _is_large(slot) and _is_mapped(key, traces, operations) else slot
        for key, slot in slots.items()
    }


def variables_of(variables: Iterable[Any]) -> list[tf.Variable]:
    """Return all variables of a file, including each block."""
    return [own for v in variables for own in (v.blocks if isinstance(v, BlockedVariable) else (v,))]


def _is_large(slot: tf.Variable) -> bool:
    size = slot.shape.num_elements() * slot.dtype.size
    return bool(slot.dtype == tf.float32 and slot.shape.rank == 2 and size >= SMALLEST and slot.shape[0] > 1)


def _in_blocks(slot: tf.Variable) -> BlockedVariable:
    values: NDArray[np.float32] = slot.numpy()
    rows, count = len(values), min(MOST, len(values), max(2, values.nbytes // BLOCK))
    size, name = -(-rows // count), slot.name.partition(":")[0]
    blocks = [values[i : i + size] for i in range(0, rows, size)]
    return BlockedVariable(tuple(tf.Variable(block, name=f"{name}.{i}") for i, block in enumerate(blocks)))


def _is_mapped(key: int, traces: Mapping[str, Trace], operations: Mapping[str, list[tf.Operation]]) -> bool:
    """Return whether everything computed from a slot is computed elementwise and then assigned."""
    for name, trace in traces.items():
        live = {op.name for op in operations[name]}
        pending = [op for op in operations[name] if trace.variables.get(op.name) == key]
        seen = {op.name for op in pending}
        while pending:
            op = pending.pop()
            users = [user for t in op.outputs for user in t.consumers() if user.name in live and user.name not in seen]
            if any(user.type not in (*MAPPED, *ASSIGNS, *READS) or user.type == "ResourceGather" for user in users):
                return False
            seen |= {user.name for user in users}
            pending += users
    return True
