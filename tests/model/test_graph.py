"""Which variables are state that the host cannot keep for each device, in real files."""

from pathlib import Path

import pytest
from ai_edge_litert import schema_py_generated as schema

from odt_sim import TrainableModel
from odt_sim.model.graph import unrestored_variables


def unrestored(content: bytes, without: tuple[str, ...] = ()) -> list[str]:
    model = schema.Model.GetRootAs(content, 0)
    found = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
    indices = {signature.SignatureKey().decode(): signature.SubgraphIndex() for signature in found}
    return unrestored_variables(model, {name: index for name, index in indices.items() if name not in without})


@pytest.mark.parametrize("name", ["plain", "weighted", "proximal", "write_only"])
def test_weights_are_set_by_the_host_and_what_nothing_reads_is_no_state(foreign: Path, name: str) -> None:
    assert unrestored((foreign / f"{name}.tflite").read_bytes()) == []


@pytest.mark.parametrize("name", ["hidden", "hidden_branch", "hidden_loop"])
def test_momentum_without_a_signature_is_found_wherever_it_is_set(foreign: Path, name: str) -> None:
    assert len(unrestored((foreign / f"{name}.tflite").read_bytes())) == 1


def test_slots_are_state_unless_a_signature_sets_them(
    softmax: TrainableModel, momentum: TrainableModel, adam: TrainableModel
) -> None:
    for model in (softmax, momentum, adam):
        assert unrestored(model.content) == []
        assert len(unrestored(model.content, without=("restore_optimizer_state",))) == len(model.slots)
    assert unrestored(softmax.content, without=("restore",)) != []
