"""The replacement of constant outputs, such as `done` of signatures that only set variables, by outputs of an op.

LiteRT's compiled model prints a line in each call for every constant output.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.editing import OPS, add_tensor, integers, made, packed, unpacked
from odt_sim.model.graph import Graph
from odt_sim.model.graph_reader import read_graph


@lru_cache(4)
def with_computed_outputs(content: bytes) -> bytes:
    """Return a file whose outputs are all computed; the file itself if they already are, or if it is damaged."""
    try:
        if not _has_constant_outputs(read_graph(content, "")):
            return content
        file = unpacked(content)
        compute_outputs(file)
        return packed(file)
    except Exception:  # damage causes any exception; LiteRT says what is wrong
        return content


def _has_constant_outputs(graph: Graph) -> bool:
    """Return whether an output of a signature is a constant; unpacking the file would take five times as long."""
    entries = graph.signatures.values()
    return any(graph.subgraphs[own.subgraph].tensors[i].constant for own in entries for i in own.outputs.values())


def compute_outputs(file: Any) -> None:
    """Replace each constant output by the output of an op.

    Args:
        file: A file in its object form.
    """
    results = dict[tuple[int, int], int]()  # by subgraph and constant, since signatures may share a subgraph
    for signature in file.signatureDefs or []:
        subgraph = file.subgraphs[signature.subgraphIndex]
        for entry in signature.outputs:
            place = signature.subgraphIndex, entry.tensorIndex
            if place not in results and file.buffers[subgraph.tensors[entry.tensorIndex].buffer].data is not None:
                results[place] = _compute(file, subgraph, entry.tensorIndex)
            entry.tensorIndex = results.get(place, entry.tensorIndex)


def _compute(file: Any, subgraph: Any, constant: int) -> int:
    """Add the op that computes an output of a subgraph; return the tensor that it computes."""
    tensor = subgraph.tensors[constant]
    result = add_tensor(subgraph, "computed", integers(tensor.shape), tensor.type)
    subgraph.operators.append(_copying(file, constant, result, tensor.type))
    outputs = [result if own == constant else own for own in integers(subgraph.outputs)]
    subgraph.outputs = np.array(outputs, np.int32)
    return result


def _copying(file: Any, tensor: int, result: int, dtype: int) -> Any:
    """Return an op that copies a tensor: a CAST, since LiteRT runs other ops on constants before the first call."""
    options = schema.CastOptionsT()
    options.inDataType = options.outDataType = dtype
    return made(file, OPS.CAST, [tensor], [result], options)
