"""The backend that chooses between threads, one thread and actors: the same bits wherever a block runs."""

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import Future
from threading import Lock

import pytest
from deaths import DeathError, DiesAfterRound

from odt_sim import Fleet
from odt_sim.simulation import auto, pace
from odt_sim.simulation.auto import AutoBackend
from odt_sim.simulation.ray import RayBackend
from odt_sim.simulation.serial import SerialBackend
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedper import FedPer

pytestmark = pytest.mark.usefixtures("ray_session")


def at_once(work):
    """Do the work of a thread now, so that tests do not depend on its time."""
    done = Future()
    done.set_result(work())
    return done


@pytest.fixture
def eager(monkeypatch):
    """Try a round in each place, and start Ray whatever it may save."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(auto, "in_daemon_thread", at_once)
    monkeypatch.setattr(auto, "_start_seconds", 0.0)
    monkeypatch.setattr(auto, "BUSY", 9.0)
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", -60.0)
    monkeypatch.setattr(pace, "FEWEST_ROUNDS", 1)
    monkeypatch.setattr(pace, "FEWEST_SECONDS", 0.0)


def without_choice(results):
    choice = results.summary["environment"].pop("backend")
    return results, choice


@pytest.mark.parametrize("strategy", [FedAvg(), FedPer()], ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("evaluate_every", [1, 3])
@pytest.mark.usefixtures("eager")
def test_run_that_moves_through_all_places_gives_the_serial_bits(strategy, evaluate_every, results, tmp_path):
    settings = {"rounds": 14, "evaluate_every": evaluate_every}
    serial, backend = results(strategy, tmp_path / "serial", **settings), AutoBackend()
    found, choice = without_choice(results(strategy, tmp_path / "auto", **settings, backend=backend))
    assert re.fullmatch(
        r"(ray: \S+ s a round, \S+ s in .+|(threads|this process): \S+ s a round, \S+ s in ray)", choice
    )
    assert choice == backend.choice
    found.assert_same_bits(serial)


@pytest.mark.usefixtures("eager")
def test_run_moves_to_other_processes(user, results, tmp_path):
    """Seven rounds end on actors, before these are compared."""
    backend = AutoBackend()
    rows = results(user.RecordsProcess(), tmp_path, rounds=7, evaluate_every=8, backend=backend).devices.splitlines()
    processes = {json.loads(row)["process"] for row in rows}
    assert backend.choice == "ray"
    assert os.getpid() not in processes


@pytest.mark.usefixtures("eager")
def test_threads_that_keep_the_cores_busy_are_not_compared(results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "BUSY", 0.0)
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", 60.0)
    backend = AutoBackend()
    results(FedAvg(), tmp_path, rounds=4, backend=backend)
    assert re.fullmatch(r"threads: \S+ s a round, \S+ cores in use", backend.choice)


@pytest.mark.usefixtures("eager")
def test_faster_of_threads_and_one_thread_stays(results, tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", 60.0)
    backend = AutoBackend()
    results(FedAvg(), tmp_path, rounds=8, evaluate_every=9, backend=backend)
    names = r"(threads: \S+ s a round, \S+ s in this process|this process: \S+ s a round, \S+ s in threads)"
    assert re.fullmatch(names, backend.choice)


@pytest.mark.usefixtures("eager")
def test_places_are_compared_again_with_the_same_bits(results, tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", 60.0)
    monkeypatch.setattr(auto, "AGAIN", 1.0)  # at once
    entered, train = [], AutoBackend.train

    def recorded(self, tasks, messages):
        found = train(self, tasks, messages)
        entered.append(self._place)
        return found

    monkeypatch.setattr(AutoBackend, "train", recorded)
    serial, backend = results(FedAvg(), tmp_path / "serial", rounds=14), AutoBackend()
    found, _ = without_choice(results(FedAvg(), tmp_path / "auto", rounds=14, backend=backend))
    moves = [place for place, before in zip(entered, [None, *entered], strict=False) if place != before]
    assert moves[:3] == ["threads", "this process", "threads"]
    assert entered.count("this process") >= 4
    found.assert_same_bits(serial)


@pytest.mark.usefixtures("eager")
def test_threads_end_once_one_thread_is_faster(results, tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", 60.0)
    monkeypatch.setattr(auto, "SURELY", 0.0)
    living, train = [], AutoBackend.train

    def counted(self, tasks, messages):
        found = train(self, tasks, messages)
        living.append(len([thread for thread in threading.enumerate() if thread.name == "devices"]))
        return found

    monkeypatch.setattr(AutoBackend, "train", counted)
    results(FedAvg(), tmp_path, rounds=8, evaluate_every=9, backend=AutoBackend())
    assert (living[0], living[-1]) == (2, 0)


def test_short_run_stays_in_threads(results, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    _, choice = without_choice(results(FedAvg(), tmp_path, rounds=1, backend=AutoBackend()))
    assert choice == "threads"


def test_one_core_runs_one_thread(results, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    _, choice = without_choice(results(FedAvg(), tmp_path, rounds=1, backend=AutoBackend()))
    assert choice == "this process: one core"


class HoldsALock(FedAvg):
    def __init__(self):
        self._lock = Lock()


def test_strategy_that_cannot_be_copied_runs_in_one_thread(results, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    _, choice = without_choice(results(HoldsALock(), tmp_path, rounds=1, backend=AutoBackend()))
    assert choice.startswith("this process: strategy HoldsALock: failed to be copied with TypeError")


class HoldsALockLater(FedAvg):
    def local(self, device, broadcast):
        self.lock = Lock()
        return super().local(device, broadcast)


@pytest.mark.usefixtures("eager")
def test_strategy_that_cannot_be_copied_any_more_stays_in_one_thread(results, tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", 60.0)
    monkeypatch.setattr(auto, "SURELY", 0.0)
    monkeypatch.setattr(auto, "AGAIN", 1.0)  # at once
    found, choice = without_choice(results(HoldsALockLater(), tmp_path, rounds=10, backend=AutoBackend()))
    assert choice.startswith("this process: strategy HoldsALockLater: failed to be copied with TypeError")
    assert len(found.rounds) == 10


@pytest.mark.usefixtures("eager")
def test_interrupted_run_resumes_on_either_side(results, simulation, tmp_path):
    whole = results(FedPer(), tmp_path / "whole", rounds=9)
    with pytest.raises(DeathError):
        simulation(FedPer(), tmp_path / "run", rounds=9, backend=AutoBackend()).run(observers=[DiesAfterRound(7)])
    simulation(FedPer(), tmp_path / "run", rounds=9, backend=SerialBackend()).run(resume=True)
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


@pytest.mark.usefixtures("eager")
def test_run_that_actors_cannot_take_stays(simulation, tmp_path):
    backend = AutoBackend()
    run = simulation(FedAvg(), tmp_path, storage="memory://odt_sim/auto", rounds=9, evaluate_every=9, backend=backend)
    assert run.run()["rounds"] == 9
    assert re.match(r"(threads|this process): Ray does not start \(run\.storage: node", backend.choice)


def test_device_with_a_time_limit_hangs_in_a_process_that_can_be_ended(user, results, tmp_path):
    backend = AutoBackend()
    rows = results(
        user.RecordsProcess(), tmp_path, fleet=Fleet(unseen=1, timeout=60), rounds=1, backend=backend
    ).devices
    assert os.getpid() not in {json.loads(row)["process"] for row in rows.splitlines()}
    assert backend.choice == "ray: fleet.timeout needs workers that can be ended"


@pytest.mark.usefixtures("eager")
def test_sweep_of_short_jobs_moves_in_the_end(results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "_start_seconds", 12.0)
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", -1.0)  # actors save a second of each of 7 rounds
    choices = []
    for job in range(3):
        settings = {"rounds": 7, "evaluate_every": 8}
        _, choice = without_choice(results(FedAvg(), tmp_path / str(job), **settings, backend=AutoBackend()))
        choices.append(choice)
    assert re.match(r"(threads|this process): \S+ s a round", choices[0])
    assert choices[-1] == "ray"


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
