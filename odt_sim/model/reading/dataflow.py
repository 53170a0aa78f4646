"""The inputs and variables that a signature's tensors, and the new values of its variables, depend on."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from odt_sim.model.reading.graph import ASSIGNS, HANDLES, READS, EntryPoint, Graph, Handle, Op

SHAPES = ("SHAPE", "RANK", "FlexShape", "ZEROS_LIKE", "FlexZerosLike", "FlexOnesLike")
"""Ops whose outputs do not depend on the values of their inputs."""


@dataclass(frozen=True, eq=False)
class Flow:
    """The dependencies in a signature.

    Attributes:
        graph: The file's graph.
        entry: The signature.
        sources: By tensor, the inputs (names) and variables (handles) that its value depends on.
        assigned: By variable, the inputs and variables that its new value depends on.
    """

    graph: Graph
    entry: EntryPoint
    sources: dict[int, frozenset[str | Handle]]
    assigned: dict[Handle, frozenset[str | Handle]]

    def of_output(self, name: str) -> frozenset[str | Handle]:
        """Return the inputs and variables that an output depends on."""
        return self.sources.get(self.entry.outputs[name], frozenset())

    def updated(self) -> tuple[Handle, ...]:
        """Return the variables whose new value depends on their old value and on an input, as in a training step."""
        return tuple(v for v, found in self.assigned.items() if v in found and any(isinstance(s, str) for s in found))

    def copied(self) -> dict[str, Handle]:
        """Return the variables that are set from exactly one input, by the input's name."""
        return {
            name: handle
            for handle, found in self.assigned.items()
            for name in found
            if isinstance(name, str) and len(found) == 1
        }

    def cone(self, tensor: int) -> Iterator[Op]:
        """Yield the ops that compute a tensor of the signature's subgraph, and those of subgraphs that they call."""
        subgraph = self.graph.subgraphs[self.entry.subgraph]
        waiting, seen = [tensor], {tensor}
        while waiting:
            op = subgraph.producers.get(waiting.pop())
            if op is not None:
                yield op
                for callee in op.calls if op.kind != "CALL_ONCE" else ():
                    yield from (inner for i in self.graph.reachable(callee) for inner in self.graph.subgraphs[i].ops)
                new = {i for i in op.inputs if i >= 0} - seen
                seen |= new
                waiting.extend(new)


def flow_of(graph: Graph, signature: str) -> Flow:
    """Return the dependencies in a signature; a condition or a loop counts as one op that mixes all its inputs."""
    entry = graph.signatures[signature]
    subgraph, handles = graph.subgraphs[entry.subgraph], graph.handles[entry.subgraph]
    sources: dict[int, frozenset[str | Handle]] = {i: frozenset([name]) for name, i in entry.inputs.items()}
    assigned: dict[Handle, frozenset[str | Handle]] = {}
    for op in subgraph.ops:
        handle = handles.get(op.inputs[0]) if op.inputs else None
        mixed = frozenset[str | Handle]().union(*(sources.get(i, ()) for i in op.inputs))
        if op.kind in READS and handle:
            mixed = assigned.get(handle, frozenset([handle]))
        elif op.kind in ASSIGNS and handle:
            own = [handle] if "Add" in op.kind or "Sub" in op.kind else []
            assigned[handle] = mixed | frozenset(own)
        elif op.calls and op.kind != "CALL_ONCE":
            inner = [a for i in _reachable(graph, op) for a in graph.accesses[i]]
            mixed |= {access.handle for access in inner if not access.assigns}
            assigned.update({access.handle: mixed for access in inner if access.assigns})
        if op.kind not in (*SHAPES, *HANDLES):
            sources.update(dict.fromkeys(op.outputs, mixed))
    return Flow(graph, entry, sources, assigned)


def live_ops(graph: Graph, signature: str) -> dict[int, set[Op]]:
    """Return the ops that a signature's outputs depend on, by the subgraphs that contain them.

    An assignment is among them if one of these ops reads the variable, before or after it.
    """
    read: set[Handle] = set()
    while True:
        live = _live(graph, graph.signatures[signature].subgraph, read)
        accesses = ((access, ops) for index, ops in live.items() for access in graph.accesses[index])
        found = {access.handle for access, ops in accesses if access.op in ops and not access.assigns}
        if found <= read:
            return live
        read |= found


def _live(graph: Graph, first: int, read: Collection[Handle]) -> dict[int, set[Op]]:
    """Return the live ops of a subgraph and of those that these ops call, if live ops read some variables."""
    live: dict[int, set[Op]] = {}
    waiting = [first]
    while waiting:
        index = waiting.pop()
        if index not in live:
            live[index] = _live_in(graph, index, read)
            waiting += [callee for op in live[index] for callee in op.calls]
    return live


def _live_in(graph: Graph, index: int, read: Collection[Handle]) -> set[Op]:
    subgraph = graph.subgraphs[index]
    setting = {access.op for access in graph.accesses[index] if access.assigns and access.handle in read}
    for op in subgraph.ops:
        inner = (access for i in _reachable(graph, op) for access in graph.accesses[i])
        if any(access.assigns and access.handle in read for access in inner):
            setting.add(op)
    live: set[Op] = set()
    waiting = [*setting, *(subgraph.producers.get(i) for i in subgraph.outputs)]
    while waiting:
        producer = waiting.pop()
        if producer and producer not in live:
            live.add(producer)
            waiting += map(subgraph.producers.get, producer.inputs)
    return live


def _reachable(graph: Graph, op: Op) -> list[int]:
    return list(dict.fromkeys(i for callee in op.calls for i in graph.reachable(callee)))
