"""Runs with the client of docs/phone-protocol.md give the results of the simulation."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from raw_phones import Running
from test_docs import blocks_of, write_files

from odt_sim import Simulation, TrainableModel, TrainingPlan
from odt_sim.data import digits, federate, iid
from odt_sim.errors import SimulationError
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.strategies import FedAvg, Scaffold


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    write_files(blocks_of("docs/phone-protocol"), tmp_path)
    return tmp_path / "phone.py"


def started(client: Path, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, client, address], stdout=subprocess.PIPE, text=True)


def records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "devices.jsonl").read_text().splitlines()]


def test_clients_give_the_results_of_the_simulation(client: Path, digits_mlp: TrainableModel, tmp_path: Path) -> None:
    data, plan, simulated = federate(digits(), iid, 2, 0), TrainingPlan(steps=2), tmp_path / "simulated"
    Simulation(digits_mlp, data, FedAvg(), rounds=2, directory=simulated, plan=plan, backend=SerialBackend()).run(
        observers=[]
    )
    running = Running(digits_mlp, tmp_path / "run")
    phones = [started(client, running.address) for _ in range(2)]
    running.finish()
    assert [phone.communicate(timeout=30)[0] for phone in phones] == ["The run has ended.\n"] * 2
    assert [line["devices"] for line in running.lines("rounds.jsonl")] == [2, 2]
    for expected, found in zip(records(simulated), records(tmp_path / "run"), strict=True):
        names = [name for name in expected if "auc" not in name and "balanced" not in name]
        assert {name: found[name] for name in names} == {
            name: pytest.approx(expected[name], abs=1e-6) for name in names
        }


def test_client_answers_that_it_takes_no_offset(client: Path, softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", devices=1, strategy=Scaffold())
    phone = started(client, running.address)
    with pytest.raises(SimulationError, match=r"failed in LiteRT\.js: .*unexpected keyword argument 'b'"):
        running.finish()
    assert phone.communicate(timeout=30)[0] == "The run has failed and can be resumed.\n"
