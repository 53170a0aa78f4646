"""Write trained weights into a `.tflite` file as the initial values of its variables."""

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim.errors import ModelError
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.reading.dataflow import flow_of
from odt_sim.model.reading.flatbuffer_fields import BUFFERS, Fields
from odt_sim.model.reading.graph import Graph, Handle
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.weights import Layout, Weights

REMEMBERED = 4 << 20
"""The largest file, in bytes, whose form is cached: larger ones take memory, and caching saves less of their time."""


def with_initial_weights(content: bytes, weights: Weights, where: str = "model") -> bytes:
    """Return a trainable model's file that starts with other weights; optimizer slots start as before.

    Args:
        content: The file's bytes.
        weights: All weights of the model, frozen ones included.
        where: The file's name, for errors.

    Raises:
        ModelError: A weight is not the value of a variable that the file initializes by a constant.
    """
    form = _form if len(content) <= REMEMBERED else _form.__wrapped__
    blank, starts = form(content, weights.layout, where)
    filled = bytearray(blank)
    for start, name in starts:
        data = weights[name].tobytes()
        filled[start : start + len(data)] = data
    return bytes(filled)


@lru_cache(maxsize=4)
def _form(content: bytes, layout: Layout, where: str) -> tuple[bytes, list[tuple[int, str]]]:
    """Return a model's file, and where each weight starts, with its name; a weight may have several places.

    Reading and writing a file's ops takes up to a second, and deploying a fleet writes a file for each device.
    """
    graph, model = read_graph(content, where), unpacked(content)
    flow = flow_of(graph, "parameters")
    sources = {name: flow.of_output(f"a{i}") for i, name in enumerate(layout.names)}
    names = {source: name for name, found in sources.items() if len(found) == 1 for source in found}
    buffers = list(_separated(model, graph, {handle: names[handle] for handle in graph.variables if handle in names}))
    if {name for _, name in buffers} < set(layout.names):
        raise ModelError(
            f"{where}: cannot store trained weights; expected 'parameters' to return initialized variables"
        )
    written = packed(model)
    starts = [buffer.vector(0)[0] for buffer in Fields.root(written).tables(BUFFERS)]
    return written, [(starts[buffer], name) for buffer, name in buffers]


def _separated(model: Any, graph: Graph, names: Mapping[Handle, str]) -> Iterator[tuple[int, str]]:
    """Give each constant that initializers assign to a weight its own buffer; yield the buffers and the weights' names."""
    tensors = Counter(tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors)
    for index in graph.initializers:
        subgraph = model.subgraphs[index]
        uses = Counter(int(i) for operator in subgraph.operators for i in operator.inputs)
        for operator, op in zip(list(subgraph.operators), graph.subgraphs[index].ops, strict=True):
            handle = graph.handles[index].get(op.inputs[0]) if op.kind == "ASSIGN_VARIABLE" else None
            name = names.get(handle) if handle else None
            if name is None or not graph.subgraphs[index].tensors[op.inputs[1]].constant:
                continue
            tensor = subgraph.tensors[op.inputs[1]]
            if uses[op.inputs[1]] > 1 or tensors[tensor.buffer] > 1:  # another variable starts with the same constant
                tensor, buffer = copy(tensor), schema.BufferT()
                buffer.data = model.buffers[tensor.buffer].data
                tensor.buffer = len(model.buffers)
                model.buffers.append(buffer)
                operator.inputs = np.array([op.inputs[0], len(subgraph.tensors)], np.int32)
                subgraph.tensors.append(tensor)
            yield tensor.buffer, name
