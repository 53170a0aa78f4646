"""A second read of a variable for ops that take its value twice.

XNNPACK crashes if both inputs of an op, such as the factors of v v, are the same read of a variable.
"""

from copy import copy
from typing import Any

import numpy as np

from odt_sim.model.editing import OPS, integers, kind_of, packed, unpacked
from odt_sim.model.flatbuffer_fields import SUBGRAPHS, Fields

_CODES, _BUILTIN = 1, 3
_OPERATORS, _CODE, _INPUTS, _OUTPUTS = 3, 0, 1, 2
"""Slots of the file, an op's code, a subgraph and an op."""


def with_separate_reads(content: bytes) -> bytes:
    """Return a file in which no op takes the same read of a variable twice, or the file itself if none does."""
    root = Fields.root(content)
    reading = {i for i, code in enumerate(root.tables(_CODES)) if code.unsigned(_BUILTIN) == OPS.READ_VARIABLE}
    if not any(_repeats(list(subgraph.tables(_OPERATORS)), reading) for subgraph in root.tables(SUBGRAPHS)):
        return content
    model = unpacked(content)
    for subgraph in model.subgraphs:
        _separate(model, subgraph)
    return packed(model)


def _repeats(operators: list[Fields], reading: set[int]) -> bool:
    """Return whether an op takes the output of an op with one of the codes `reading` twice."""
    reads = {op.integers(_OUTPUTS)[0] for op in operators if op.unsigned(_CODE) in reading}
    taken = ([tensor for tensor in op.integers(_INPUTS) if tensor in reads] for op in operators)
    return any(len(set(tensors)) < len(tensors) for tensors in taken)


def _separate(model: Any, subgraph: Any) -> None:
    """Add a read for each further time that an op takes the same read."""
    reads, operators = dict[int, Any](), []
    for op in subgraph.operators:
        inputs = integers(op.inputs)
        for place, tensor in enumerate(inputs):
            if tensor in reads and tensor in inputs[:place]:
                inputs[place] = len(subgraph.tensors)
                subgraph.tensors.append(copy(subgraph.tensors[tensor]))
                operators.append(copy(reads[tensor]))
                operators[-1].outputs = np.array([inputs[place]], np.int32)
        op.inputs = np.array(inputs, np.int32)
        operators.append(op)
        if kind_of(model, op) == OPS.READ_VARIABLE:
            reads[int(op.outputs[0])] = op
    subgraph.operators = operators
