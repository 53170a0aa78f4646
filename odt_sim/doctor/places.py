"""The layer or variable to which an op belongs."""

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Set
from typing import NamedTuple

from odt_sim.model.reading.graph import READS, Graph, Op, Subgraph

GENERIC = re.compile(
    r"(Stateful)?PartitionedCall(_\d+)?|gradient_tape|gradients|while|cond|body|model|sequential(_\d+)?|functional(_\d+)?"
)
"""Parts of a name that are not a layer."""


class Place(NamedTuple):
    """The layer and the variable to which an op belongs.

    Attributes:
        layer: The name of a layer, from the names of tensors or of the nearest variable; empty if there is none.
        variable: The nearest variable; empty if there is none, or if it does not belong to a layer that has variables.
    """

    layer: str
    variable: str

    def __str__(self) -> str:
        """Return both, the layer only if the variable's name does not contain it."""
        if self.layer and not self.variable.startswith(self.layer):
            return f"{self.layer} ({self.variable})" if self.variable else self.layer
        return self.variable


def places(graph: Graph, index: int, layers: Mapping[str, str] | None = None) -> list[Place]:
    """Return the place of each op of a subgraph, in order.

    Args:
        graph: The file's graph.
        index: The subgraph.
        layers: The layer of each variable by the variable's name, where a manifest declares it.
    """
    subgraph = graph.subgraphs[index]
    nearest = _nearest_variables(graph, index)
    with_variables = {layer for handle in graph.variables for layer in _layers(handle.name.rpartition("/")[0])}
    return [
        _place(subgraph, op, nearest.get(number, ""), layers or {}, with_variables)
        for number, op in enumerate(subgraph.ops)
    ]


def _place(subgraph: Subgraph, op: Op, variable: str, layers: Mapping[str, str], with_variables: Set[str]) -> Place:
    named = layers.get(variable)
    if named is not None:
        return Place(named, variable)
    names = [subgraph.tensors[i].name for i in op.outputs if i >= 0]
    named = next(filter(None, map(layer_of, names)), "")
    if _layers(named) & with_variables and not _layers(named) & _layers(variable):
        return Place(named, "")
    return Place(named or variable.rpartition("/")[0], variable)


def _layers(name: str) -> set[str]:
    """Return the parts of a name without the numbers by which TensorFlow makes names unique."""
    return {re.sub(r"_\d+$", "", part) for part in name.split("/") if part}


def layer_of(name: str) -> str:
    """Return the layer in the name of a tensor such as `StatefulPartitionedCall/sequential/dense/MatMul`; empty if none."""
    parts = name.partition(";")[0].split("/")[:-1]
    return "/".join(part for part in parts if not GENERIC.fullmatch(part))


def _nearest_variables(graph: Graph, index: int) -> dict[int, str]:
    """Return for each op the variable with the fewest ops in between, in either direction; assigned variables first."""
    subgraph, numbers = graph.subgraphs[index], defaultdict[int, list[int]](list)
    for number, op in enumerate(subgraph.ops):
        for tensor in {*op.inputs, *op.outputs}:
            if tensor >= 0 and not subgraph.tensors[tensor].constant and tensor not in graph.handles[index]:
                numbers[tensor].append(number)
    found: dict[int, str] = {}
    accesses = {id(access.op): access for access in graph.accesses[index]}
    starts = sorted((op.kind in READS, number) for number, op in enumerate(subgraph.ops) if id(op) in accesses)
    waiting = deque[int]()
    for _, number in starts:
        found[number] = accesses[id(subgraph.ops[number])].handle.name
        waiting.append(number)
    inputs = set(subgraph.inputs)
    while waiting:
        number = waiting.popleft()
        op = subgraph.ops[number]
        for tensor in (*op.inputs, *op.outputs):
            if tensor in inputs or tensor < 0:
                continue  # every op is near the examples
            for neighbour in numbers.get(tensor, ()):
                if neighbour not in found:
                    found[neighbour] = found[number]
                    waiting.append(neighbour)
    return found
