"""The backend that chooses between one and several processes: the same bits wherever a block runs."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
from itertools import repeat

import pytest

from odt_sim import Fleet
from odt_sim.errors import FileError
from odt_sim.simulation.executors import auto, processes
from odt_sim.simulation.executors.auto import AutoBackend
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedper import FedPer

pytestmark = pytest.mark.usefixtures("ray_session")

COMPARED = r"(processes: \S+ s a round, \S+ s in this process alone|this process: \S+ s a round, \S+ s in 2 processes)"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})


@pytest.fixture
def eager(monkeypatch):
    """Let the backend compare two rounds in each place, however long they take."""
    monkeypatch.setattr(auto, "LONG", 60.0)
    monkeypatch.setattr(auto, "COMPARED", 2)


def without_choice(results):
    choice = results.summary["environment"].pop("backend", None)
    return results, choice


@pytest.mark.usefixtures("eager")
def test_choice_is_recorded(results, tmp_path):
    backend = AutoBackend()
    _, choice = without_choice(results(FedPer(), tmp_path, rounds=8, backend=backend))
    assert re.fullmatch(COMPARED, choice)
    assert choice == backend.choice
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("eager")
def test_long_rounds_are_not_compared(results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "LONG", 0.0)
    backend = AutoBackend()
    results(FedAvg(), tmp_path, rounds=4, backend=backend)
    assert re.fullmatch(r"processes: \S+ s a round", backend.choice)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("seconds", "moves"),
    [
        pytest.param([99, 2, 2, 99, 3, 3], "PPPAAAPP", id="slower in one process"),
        pytest.param([0, 3, 3, 0, 2, 2], "PPPAAAAA", id="faster in one process"),
    ],
)
def test_faster_place_is_kept(seconds, moves, results, tmp_path, monkeypatch):
    """The seconds are those of each round; the first round in a place is not measured."""
    clock, entered, living = [0.0], [], []
    steps = iter([*seconds, *repeat(1, 20)])

    def timed(backend, run):
        def measured(assignment, take):
            run(assignment, take)
            if assignment.trains:
                entered.append(backend)
                living.append(len(multiprocessing.active_children()))
                clock[0] += next(steps)

        return measured

    backend = AutoBackend()
    places = backend._processes, backend._processes.alone
    for place, name in zip(places, "PA", strict=True):
        monkeypatch.setattr(place, "run", timed(name, place.run))
    monkeypatch.setattr(auto, "perf_counter", lambda: clock[0])
    results(FedAvg(), tmp_path, rounds=8, evaluate_every=9, backend=backend)
    assert "".join(entered) == moves
    assert living[-1] == int(moves[-1] == "P")


def test_short_run_stays_in_processes(results, tmp_path):
    _, choice = without_choice(results(FedAvg(), tmp_path, rounds=1, backend=AutoBackend()))
    assert choice == "processes"


def test_one_core_runs_one_process(results, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    _, choice = without_choice(results(FedAvg(), tmp_path, rounds=1, backend=AutoBackend()))
    assert choice == "this process: one core"


def test_macos_runs_one_process(results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "CAN_FORK", False)
    monkeypatch.setattr(processes, "CAN_FORK", False)
    _, choice = without_choice(results(FedAvg(), tmp_path, rounds=2, backend=AutoBackend()))
    assert choice == "this process: backend=ray uses all cores"


def test_run_stays_in_its_process_if_the_system_refuses_others(results, tmp_path, monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    found, choice = without_choice(results(FedAvg(), tmp_path, rounds=4, backend=AutoBackend()))
    assert re.match(r"this process: backend processes: cannot start process 2 \(daemonic", choice)
    assert len(found.rounds) == 4


@pytest.mark.slow
def test_device_with_a_time_limit_hangs_in_a_process_that_can_be_ended(user, results, tmp_path):
    backend = AutoBackend()
    rows = results(
        user.RecordsProcess(), tmp_path, fleet=Fleet(unseen=1, timeout=60), rounds=1, backend=backend
    ).devices
    assert os.getpid() not in {json.loads(row)["process"] for row in rows.splitlines()}
    assert backend.choice == "ray: fleet.timeout needs workers that can be killed"


def test_run_whose_storage_only_its_process_sees_stays_there(results, simulation, tmp_path):
    backend = AutoBackend()
    simulation(FedPer(), tmp_path, storage="memory://odt_sim/auto", backend=backend).run()
    assert backend.choice.startswith("this process: run.storage: only this process can access memory://odt_sim/auto/")


def test_storage_that_cannot_be_written_is_named(simulation, tmp_path):
    (tmp_path / "file").touch()
    run = simulation(FedAvg(), tmp_path / "run", storage=tmp_path / "file" / "storage", backend=AutoBackend())
    with pytest.raises(FileError, match="file/storage"):
        run.run()


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, AutoBackend),
        ({"runtime": "compiled"}, AutoBackend),
        ({"address": "auto"}, RayBackend),
        ({"actors": 2}, RayBackend),
        ({"devices_per_actor": 1}, RayBackend),
        ({"num_cpus": 0.5}, RayBackend),
        ({"runtime_env": {"env_vars": {"A": "1"}}}, RayBackend),
    ],
)
def test_setting_of_actors_chooses_ray(settings, kind):
    assert type(auto.backend(**settings)) is kind


def test_ray_is_not_imported_before_it_is_needed():
    script = (
        "import sys; from odt_sim.simulation.executors.auto import backend; backend().start(); "
        "print('ray' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["False"]
