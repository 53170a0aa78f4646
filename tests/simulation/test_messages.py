"""Tensors for single devices: computed on the coordinator, only for the devices of a cohort."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, Fleet
from odt_sim.errors import SimulationError
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.simulation.run.messages import Messages
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.base import ServerState, Tensors


def test_only_devices_of_a_cohort_have_messages(simulation: Any, user: Any, tmp_path: Path) -> None:
    strategy = user.SendsItsNumber()
    simulation(strategy, tmp_path, rounds=1, fleet=Fleet(cohort=2, evaluated=3)).run()
    records = RunFolder(tmp_path).devices()
    assert [row["own"] for row in records] == [3.0 * row["device"] for row in records]
    assert len(set(strategy.asked)) <= 2 + len(records) < 7


def test_tensors_of_the_broadcast_travel_once(simulation: Any, user: Any, tmp_path: Path) -> None:
    """A block contains only tensors for single devices; all received tensors count as downloaded."""
    job = simulation(user.SendsItsNumber(), tmp_path)._job
    state = job.strategy.init(Device(job.model, (job.data.x, job.data.y)).parameters())
    messages = Messages(job, state)
    message = messages._message(2)
    assert (message.shared, message.own) == ({"weights": "weights"}, {"own": np.array([6.0])})
    received = message.received(state.broadcast)
    assert received["weights"] is state.broadcast["weights"]
    assert messages.bytes([2, 4]) == 2 * (4 * job.model.layout.size + 8)


def test_message_that_fails_names_the_device(simulation: Any, tmp_path: Path) -> None:
    class Forgets(FedAvg):
        def message(self, state: ServerState, device: int) -> Tensors:
            return None if device == 3 else state.broadcast  # type: ignore[return-value]

    with pytest.raises(SimulationError, match="failed in message for device 3 with TypeError: it returned NoneType"):
        simulation(Forgets(), tmp_path).run()
