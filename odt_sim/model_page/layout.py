"""A layered drawing of a graph (Sugiyama, Tagawa and Toda 1981), in simple form.

Each node is one layer below the lowest of its predecessors. Within a layer, nodes are ordered by the mean position of
their neighbours (the barycentre heuristic), and then placed as near to that position as the order allows.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 190.0, 62.0
"""The distance between the centres of neighbours in a layer, and between layers."""

SWEEPS = 8

Edge = tuple[int, int]
Point = tuple[float, float]


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
