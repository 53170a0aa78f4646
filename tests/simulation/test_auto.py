"""The backend that chooses between one and several processes: the same bits wherever a block runs."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
from itertools import accumulate, chain, repeat

import pytest
from deaths import DeathError, DiesAfterRound

from odt_sim import Fleet
from odt_sim.errors import FileError
from odt_sim.simulation import auto, pace
from odt_sim.simulation.auto import AutoBackend
from odt_sim.simulation.processes import backend as backend_of_processes
from odt_sim.simulation.ray import RayBackend
from odt_sim.simulation.serial import SerialBackend
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedper import FedPer

pytestmark = pytest.mark.usefixtures("ray_session")

COMPARED = r"(processes: \S+ s a round, \S+ s in this process alone|this process: \S+ s a round, \S+ s in 2 processes)"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})


@pytest.fixture
def eager(monkeypatch):
    """Let the backend try a round in each place."""
    monkeypatch.setattr(auto, "LONG", 60.0)
    monkeypatch.setattr(pace, "FEWEST_ROUNDS", 1)
    monkeypatch.setattr(pace, "FEWEST_SECONDS", 0.0)


def without_choice(results):
    choice = results.summary["environment"].pop("backend")
    return results, choice


@pytest.mark.parametrize("strategy", [FedAvg(), FedPer()], ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("evaluate_every", [1, 3])
@pytest.mark.usefixtures("eager")
def test_run_in_both_places_gives_the_serial_bits(strategy, evaluate_every, results, tmp_path):
    settings = {"rounds": 8, "evaluate_every": evaluate_every}
    serial, backend = results(strategy, tmp_path / "serial", **settings), AutoBackend()
    found, choice = without_choice(results(strategy, tmp_path / "auto", **settings, backend=backend))
    assert re.fullmatch(COMPARED, choice)
    assert choice == backend.choice
    found.assert_same_bits(serial)
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("eager")
def test_long_rounds_are_not_compared(results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "LONG", 0.0)
    backend = AutoBackend()
    results(FedAvg(), tmp_path, rounds=4, backend=backend)
    assert re.fullmatch(r"processes: \S+ s a round", backend.choice)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("surely", "place", "helpers"), [(1e9, "processes", 1), (0.0, "this process", 0)])
def test_faster_place_stays(surely, place, helpers, results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "SURELY", surely)
    monkeypatch.setattr(auto, "AGAIN", 1e9)  # never, even if a round on a busy machine takes longer than all before
    living, train = [], AutoBackend.train

    def counted(self, tasks, messages):
        found = train(self, tasks, messages)
        living.append(len(multiprocessing.active_children()))
        return found

    monkeypatch.setattr(AutoBackend, "train", counted)
    backend = AutoBackend()
    results(FedAvg(), tmp_path, rounds=8, evaluate_every=9, backend=backend)
    assert backend.choice.startswith(f"{place}: ")
    assert (living[0], living[-1]) == (1, helpers)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("surely", [0.0, 1e9])
def test_places_are_compared_again_with_the_same_bits(surely, results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "SURELY", surely)
    monkeypatch.setattr(auto, "AGAIN", 1.0)  # at once
    entered, train = [], AutoBackend.train

    def recorded(self, tasks, messages):
        found = train(self, tasks, messages)
        entered.append(self._place)
        return found

    monkeypatch.setattr(AutoBackend, "train", recorded)
    settings = {"rounds": 14, "evaluate_every": 1}
    serial, backend = results(FedPer(), tmp_path / "serial", **settings), AutoBackend()
    found, _ = without_choice(results(FedPer(), tmp_path / "auto", **settings, backend=backend))
    moves = [place for place, before in zip(entered, [None, *entered], strict=False) if place != before]
    assert moves[:4] == ["processes", "this process", "processes", "this process"]
    found.assert_same_bits(serial)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("seconds", "moves"),
    [
        pytest.param([9, 2, 9, 1, 9, 3], "PPAAPPAA", id="slower before and after"),
        pytest.param([9, 2, 9, 1, 9, 0.5], "PPAAPPPP", id="slower on a busy machine"),
        pytest.param([9, 0.5, 9, 1], "PPAAPPPP", id="faster"),
    ],
)
def test_processes_are_given_up_if_they_are_slower_twice(seconds, moves, results, tmp_path, monkeypatch):
    """The seconds are those of each round; the first round in a place is not measured."""
    monkeypatch.setattr(auto, "AGAIN", 1e9)
    ends, entered, train = accumulate(chain([0], seconds, repeat(1))), [], AutoBackend.train

    def timed(self, tasks, messages):
        now = next(ends)
        monkeypatch.setattr(auto, "perf_counter", lambda: now)
        found = train(self, tasks, messages)
        entered.append("P" if self._place == "processes" else "A")
        return found

    monkeypatch.setattr(AutoBackend, "train", timed)
    results(FedAvg(), tmp_path, rounds=8, evaluate_every=9, backend=AutoBackend())
    assert "".join(entered) == moves


def test_short_run_stays_in_processes(results, tmp_path):
    _, choice = without_choice(results(FedAvg(), tmp_path, rounds=1, backend=AutoBackend()))
    assert choice == "processes"


def test_one_core_runs_one_process(results, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    _, choice = without_choice(results(FedAvg(), tmp_path, rounds=1, backend=AutoBackend()))
    assert choice == "this process: one core"


def test_long_run_on_one_core_of_macos_recommends_ray_once(results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "CAN_FORK", False)
    monkeypatch.setattr(backend_of_processes, "CAN_FORK", False)
    monkeypatch.setattr(auto, "WORTH_RAY", 1e-9)
    with pytest.warns(UserWarning, match=r"^backend auto: uses 1 of 2 cores on macOS; .* with backend=ray") as caught:
        _, choice = without_choice(results(FedAvg(), tmp_path, rounds=4, backend=AutoBackend()))
    assert len(caught) == 1
    assert choice == "this process: backend=ray uses all cores"


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("since", [0, 5])
def test_run_stays_in_its_process_if_the_system_refuses_others(since, results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "SURELY", 0.0)
    monkeypatch.setattr(auto, "AGAIN", 1.0)  # at once
    train, daemon, rounds = AutoBackend.train, multiprocessing.current_process()._config, []

    def refused(self, tasks, messages):
        rounds.append(tasks)
        if len(rounds) > since:
            monkeypatch.setitem(daemon, "daemon", True)
        return train(self, tasks, messages)

    if since:
        monkeypatch.setattr(AutoBackend, "train", refused)
    else:
        monkeypatch.setitem(daemon, "daemon", True)
    found, choice = without_choice(results(FedAvg(), tmp_path, rounds=12, backend=AutoBackend()))
    assert re.match(r"this process: backend processes: cannot start process 2 \(daemonic", choice)
    assert len(found.rounds) == 12


@pytest.mark.usefixtures("eager")
def test_interrupted_run_resumes_on_either_side(results, simulation, tmp_path):
    whole = results(FedPer(), tmp_path / "whole", rounds=9)
    with pytest.raises(DeathError):
        simulation(FedPer(), tmp_path / "run", rounds=9, backend=AutoBackend()).run(observers=[DiesAfterRound(7)])
    simulation(FedPer(), tmp_path / "run", rounds=9, backend=SerialBackend()).run(resume=True)
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


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
    script = "import sys; from odt_sim.simulation.auto import backend; backend().start(); print('ray' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["False"]
