"""The graph of a signature as nodes and edges with positions, as JSON types."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from odt_sim.doctor.file_checks import is_custom
from odt_sim.doctor.places import places
from odt_sim.model.graph import ASSIGNS, HANDLES, READS, Graph, Op, Subgraph
from odt_sim.model_page.layout import placed

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

Node = dict[str, Any]


def drawing(graph: Graph, index: int, delegated: Collection[int] | None, layers: Mapping[str, str]) -> dict[str, Any]:
    """Return the nodes and edges of a subgraph.

    Args:
        graph: The file's graph.
        index: The subgraph.
        delegated: The numbers of the ops that XNNPACK runs; None if unknown.
        layers: The layer of each variable, where a manifest declares it.
    """
    return _Drawing(graph, index, delegated, layers).content()


def runner(op: Op, number: int, delegated: Collection[int] | None) -> str:
    """Return what runs an op, a key of `RUNNERS`."""
    if op.flex:
        return "flex"
    if is_custom(op):
        return "custom"
    if delegated is None:
        return "unknown"
    return "xnnpack" if number in delegated else "kernel"


@dataclass
class _Nodes:
    """Nodes and edges while they are collected; nodes of inputs and variables come before the ops that take them."""

    nodes: list[Node] = field(default_factory=list)
    edges: set[tuple[int, int]] = field(default_factory=set)
    source: dict[int, int] = field(default_factory=dict)  # the node that computes a tensor

    def add(self, **node: Any) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


class _Drawing:
    def __init__(self, graph: Graph, index: int, delegated: Collection[int] | None, layers: Mapping[str, str]) -> None:
        self._graph, self._index, self._delegated = graph, index, delegated
        self._subgraph = graph.subgraphs[index]
        self._handles = graph.handles[index]
        self._places = places(graph, index, layers)
        self._made = _Nodes()

    def content(self) -> dict[str, Any]:
        for tensor in self._subgraph.inputs:
            self._made.source[tensor] = self._border("input", tensor)
        for number, op in enumerate(self._subgraph.ops):
            if op.kind not in HIDDEN:
                self._add(number, op)
        for tensor in self._subgraph.outputs:
            if tensor in self._made.source:
                self._made.edges.add((self._made.source[tensor], self._border("output", tensor)))
        points = placed(len(self._made.nodes), sorted(self._made.edges))
        nodes = [{**node, "x": round(x), "y": round(y)} for node, (x, y) in zip(self._made.nodes, points, strict=True)]
        return {"nodes": nodes, "edges": [list(edge) for edge in sorted(self._made.edges)]}

    def _border(self, kind: str, tensor: int) -> int:
        text, label = self._subgraph.tensors[tensor].text, self._name(tensor, kind == "input")
        return self._made.add(kind=kind, label=label, text=text, layer="", runner="border")

    def _add(self, number: int, op: Op) -> None:
        place = self._places[number]
        handle = self._handles.get(op.inputs[0]) if op.inputs and op.kind in (*READS, *ASSIGNS) else None
        node = self._made.add(
            kind=op.kind,
            label=handle.name if handle else op.kind,
            text=_first_text(self._subgraph, op),
            layer=place.layer,
            variable=place.variable,
            runner=runner(op, number, self._delegated),
            number=number,
            inputs=list(self._described(op.inputs)),
            outputs=list(self._described(op.outputs)),
        )
        for tensor in op.inputs:
            if tensor in self._made.source:
                self._made.edges.add((self._made.source[tensor], node))
        self._made.source.update(dict.fromkeys(op.outputs, node))

    def _described(self, tensors: tuple[int, ...]) -> Iterator[str]:
        for i in tensors:
            if i >= 0:
                tensor = self._subgraph.tensors[i]
                constant = ", constant" if tensor.constant else ""
                yield f"{tensor.name or i}: {tensor.text}{constant}"

    def _name(self, tensor: int, given: bool) -> str:
        for entry in self._graph.signatures.values():
            side = entry.inputs if given else entry.outputs
            found = [name for name, i in side.items() if i == tensor and entry.subgraph == self._index]
            if found:
                return found[0]
        return self._subgraph.tensors[tensor].name


def _first_text(subgraph: Subgraph, op: Op) -> str:
    """Return the dtype and shape of an op's first output, or of the value that it assigns."""
    tensors = [i for i in (*op.outputs[:1], *op.inputs[1:2]) if i >= 0]
    return subgraph.tensors[tensors[0]].text if tensors else ""
