"""The ops that a signature's outputs depend on."""

from pathlib import Path

import pytest

from odt_sim.model.reading.dataflow import live_ops
from odt_sim.model.reading.graph_reader import read_graph


@pytest.mark.parametrize(("name", "count"), [("hidden_branch", 3), ("hidden_loop", 2)])
def test_assignments_of_variables_that_are_read_are_live(foreign: Path, name: str, count: int) -> None:
    """The momentum is assigned in a branch or a loop, and read by the next step."""
    graph = read_graph((foreign / f"{name}.tflite").read_bytes(), name)
    live = live_ops(graph, "train")
    reached = graph.reachable(graph.signatures["train"].subgraph)
    assigning = {i: {access.op for access in graph.accesses[i] if access.assigns} for i in reached}
    assert sum(map(len, assigning.values())) == count
    for index, ops in assigning.items():
        assert ops <= live.get(index, set())
