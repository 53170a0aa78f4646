"""Frozen parameters are never sent."""

import json
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, Strategy, TrainableModel, Weights
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.runtime import Runtime
from odt_sim.errors import StrategyError
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.shared_parts.fedper import FedPer
from odt_sim.strategies.shared_parts.lg_fedavg import LGFedAvg
from odt_sim.strategies.state import keep

HEAD = 4 * (5 * 3 + 3)
"""The bytes of the head: five features, three classes."""


def rounds(run: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.directory / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.filterwarnings("ignore:strategy fedper. shares only parameters that are frozen")
@pytest.mark.parametrize(
    ("strategy", "size"), [(FedAvg(), HEAD), (FedAvgFineTune(max_epochs=1), HEAD), (FedPer(), 0), (Local(), 0)]
)
def test_frozen_parameters_are_neither_sent_nor_kept(
    small_twin: Any, frozen: TrainableModel, strategy: Strategy, size: int
) -> None:
    run = small_twin.run(strategy, frozen)
    assert {(row["bytes_down"], row["bytes_up"]) for row in rounds(run)} == {(3 * size, 3 * size)}
    initial = Runtime(frozen).initial
    for id in range(3):
        deployed, own = run.deployed(id), run.device(id).state.get("own")
        differ = {p.group for p in frozen.parameters if not np.array_equal(deployed[p.name], initial[p.name])}
        assert differ == {"head"}
        assert (own.vector.nbytes if own else 0) == HEAD - size


def test_part_of_the_devices_that_is_frozen_is_refused(frozen: TrainableModel) -> None:
    """LG-FedAvg on a frozen body would be FedAvg under another name."""
    message = (
        "lg_fedavg: keeps the body and norm of the model .* on the devices, which is frozen, so it would equal FedAvg"
    )
    with pytest.raises(StrategyError, match=message):
        LGFedAvg().check(frozen)


def test_global_model_is_evaluated(small_twin: Any, frozen: TrainableModel) -> None:
    run = small_twin.run(FedAvgFineTune(max_epochs=2), frozen)
    for row in run.rows:
        device = run.device(row["device"])
        device.restore(run.weights)
        found = device.evaluate()
        assert (row["global_loss"], row["global_accuracy"]) == (found["loss"], found["accuracy"])


def test_deployed_body_does_not_change_the_global_model(small_twin: Any, frozen: TrainableModel) -> None:
    class DeploysAnotherBody(FedAvg):
        def deploy(self, device: Device, broadcast: Any) -> Weights:
            return 2 * super().deploy(device, broadcast)

    known, other = (small_twin.run(strategy, frozen) for strategy in (FedAvg(), DeploysAnotherBody()))
    for one, two in zip(known.rows, other.rows, strict=True):
        assert one["global_loss"] == two["global_loss"] == one["loss"]
        assert two["loss"] != one["loss"]


def test_keep_skips_frozen_parameters(frozen: TrainableModel, small_data: FederatedData) -> None:
    device = Device(frozen, (small_data.x, small_data.y))
    keep(device, device.parameters(), frozen.layout.select(lambda p: False))
    assert device.state["own"].layout == frozen.trainable_layout
