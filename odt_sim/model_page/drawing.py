"""The graph of a signature as nodes and edges with positions, as JSON types.

The layout is layered (Sugiyama, Tagawa and Toda 1981), in simple form: each node is one layer below the lowest of its
predecessors. Within a layer, nodes are ordered by the mean position of their neighbours (the barycentre heuristic), and then
placed as near to that position as the order allows.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odt_sim.doctor.file_checks import is_custom
from odt_sim.doctor.places import places
from odt_sim.model.reading.graph import ASSIGNS, HANDLES, READS, Graph, Op, Subgraph

RUNNERS = {
    "xnnpack": "XNNPACK delegate",
    "kernel": "LiteRT kernel",
    "flex": "Flex (TensorFlow)",
    "custom": "custom op",
    "unknown": "not run here",
}
"""What runs an op."""

HIDDEN = (*HANDLES, "CALL_ONCE")
"""Ops that are not drawn: they carry no values."""

WIDTH, HEIGHT = 190.0, 62.0
"""The distance between the centres of neighbours in a layer, and between layers."""

SWEEPS = 8

Edge = tuple[int, int]
Point = tuple[float, float]


def drawing(graph: Graph, index: int, delegated: Collection[int] | None, layers: Mapping[str, str]) -> dict[str, Any]:
    """Return the nodes and edges of a subgraph.

    Args:
        graph: The file's graph.
        index: The subgraph.
        delegated: The numbers of the ops that XNNPACK runs; None if unknown.
        layers: The layer of each variable, where a manifest declares it.
    """
    subgraph = graph.subgraphs[index]
    nodes: list[dict[str, Any]] = []
    edges = set[Edge]()
    sources: dict[int, int] = {}  # the node that computes a tensor

    def border(kind: str, tensor: int) -> None:
        label, text = _border_name(graph, index, tensor, kind), subgraph.tensors[tensor].text
        nodes.append({"kind": kind, "label": label, "text": text, "layer": "", "runner": "border"})

    for tensor in subgraph.inputs:
        sources[tensor] = len(nodes)
        border("input", tensor)
    for number, (op, place) in enumerate(zip(subgraph.ops, places(graph, index, layers), strict=True)):
        if op.kind in HIDDEN:
            continue
        handle = graph.handles[index].get(op.inputs[0]) if op.inputs and op.kind in (*READS, *ASSIGNS) else None
        edges |= {(sources[tensor], len(nodes)) for tensor in op.inputs if tensor in sources}
        sources |= dict.fromkeys(op.outputs, len(nodes))
        nodes.append(
            {
                "kind": op.kind,
                "label": handle.name if handle else op.kind,
                "text": next((subgraph.tensors[i].text for i in (*op.outputs[:1], *op.inputs[1:2]) if i >= 0), ""),
                "layer": place.layer,
                "variable": place.variable,
                "runner": runner(op, number, delegated),
                "number": number,
                "inputs": _described(subgraph, op.inputs),
                "outputs": _described(subgraph, op.outputs),
            }
        )
    for tensor in subgraph.outputs:
        if tensor in sources:
            edges.add((sources[tensor], len(nodes)))
            border("output", tensor)
    points = placed(len(nodes), sorted(edges))
    placed_nodes = [{**node, "x": round(x), "y": round(y)} for node, (x, y) in zip(nodes, points, strict=True)]
    return {"nodes": placed_nodes, "edges": [list(edge) for edge in sorted(edges)]}


def runner(op: Op, number: int, delegated: Collection[int] | None) -> str:
    """Return what runs an op, a key of `RUNNERS`."""
    if op.flex:
        return "flex"
    if is_custom(op):
        return "custom"
    if delegated is None:
        return "unknown"
    return "xnnpack" if number in delegated else "kernel"


def _described(subgraph: Subgraph, tensors: Sequence[int]) -> list[str]:
    known = [(i, subgraph.tensors[i]) for i in tensors if i >= 0]
    return [f"{tensor.name or i}: {tensor.text}{', constant' if tensor.constant else ''}" for i, tensor in known]


def _border_name(graph: Graph, index: int, tensor: int, kind: str) -> str:
    """Return the name of an input or output in the first signature of a subgraph; without one, the tensor's name."""
    entries = [entry for entry in graph.signatures.values() if entry.subgraph == index]
    sides = (entry.inputs if kind == "input" else entry.outputs for entry in entries)
    return next(
        (name for side in sides for name, i in side.items() if i == tensor), graph.subgraphs[index].tensors[tensor].name
    )


def placed(count: int, edges: Sequence[Edge]) -> list[Point]:
    """Return the centre of each node.

    Args:
        count: The number of nodes, which are numbered so that edges point forward.
        edges: Pairs of nodes, the first before the second.
    """
    layers = _layers(count, edges)
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for node, layer in enumerate(layers):
        rows[layer].append(node)
    neighbours = defaultdict[int, list[int]](list)
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    x = {node: float(place) for row in rows for place, node in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            _place(row, x, neighbours)
    left = min(x.values(), default=0.0)
    return [((x[node] - left) * WIDTH, layers[node] * HEIGHT) for node in range(count)]


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return each node's layer; a node without predecessors, such as a variable, is just above its first successor."""
    before, after = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for one, other in edges:
        before[other].append(one)
        after[one].append(other)
    layers = [0] * count
    for node in range(count):
        layers[node] = max((layers[other] + 1 for other in before[node]), default=0)
    for node in reversed(range(count)):
        if not before[node] and after[node]:
            layers[node] = max(0, min(layers[other] for other in after[node]) - 1)
    return layers


def _place(row: list[int], x: dict[int, float], neighbours: Mapping[int, Sequence[int]]) -> None:
    """Order a row by its neighbours' mean positions, and place each node there or one step right of the one before."""
    wanted = {node: _mean([x[other] for other in neighbours[node]], x[node]) for node in row}
    row.sort(key=lambda node: (wanted[node], node))
    places: list[float] = []
    for node in row:
        places.append(max(wanted[node], places[-1] + 1) if places else wanted[node])
    shift = _mean([wanted[node] - place for node, place in zip(row, places, strict=True)], 0.0)
    for node, place in zip(row, places, strict=True):
        x[node] = place + shift


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
