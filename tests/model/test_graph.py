"""Variables in real files that the host cannot restore."""

from pathlib import Path

import pytest

from odt_sim import TrainableModel
from odt_sim.model.reading.graph import unrestored_variables
from odt_sim.model.reading.graph_reader import read_graph


def unrestored(content: bytes, without: tuple[str, ...] = ()) -> list[str]:
    graph = read_graph(content, "model")
    return unrestored_variables(graph, graph.signatures.keys() - set(without))


@pytest.mark.parametrize("name", ["plain", "weighted", "proximal", "write_only"])
def test_weights_and_unread_variables_are_not_state(foreign: Path, name: str) -> None:
    assert unrestored((foreign / f"{name}.tflite").read_bytes()) == []


@pytest.mark.parametrize("name", ["hidden", "hidden_branch", "hidden_loop"])
def test_hidden_momentum_is_found_in_any_subgraph(foreign: Path, name: str) -> None:
    assert len(unrestored((foreign / f"{name}.tflite").read_bytes())) == 1


def test_slots_without_signature_are_state(
    softmax: TrainableModel, momentum: TrainableModel, adam: TrainableModel
) -> None:
    for model in (softmax, momentum, adam):
        assert unrestored(model.content) == []
        assert len(unrestored(model.content, without=("restore_optimizer_state",))) == len(model.slots)
    assert unrestored(softmax.content, without=("restore",)) != []
