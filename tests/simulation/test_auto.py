"""The backend that chooses between this process and actors: the same bits wherever a block runs."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import Future

import pytest
from deaths import DeathError, DiesAfterRound

from odt_sim import Fleet
from odt_sim.simulation import auto, cohort, pace
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
    """Let any saving be worth the start of Ray."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(auto, "in_daemon_thread", at_once)
    monkeypatch.setattr(auto, "_start_seconds", 0.0)
    monkeypatch.setattr(auto, "LOOKS_AFTER", 0.0)
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", 0.0)


@pytest.fixture
def brief(monkeypatch):
    """Compare after a round on each."""
    monkeypatch.setattr(pace, "FEWEST_ROUNDS", 1)
    monkeypatch.setattr(pace, "FEWEST_SECONDS", 0.0)


def without_choice(results):
    choice = results.summary["environment"].pop("backend")
    return results, choice


@pytest.mark.parametrize("strategy", [FedAvg(), FedPer()], ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("blocks", [2, 16])
@pytest.mark.usefixtures("eager")
def test_moved_run_gives_the_serial_bits(strategy, blocks, user, results, tmp_path, monkeypatch):
    """With 16 blocks of a device each, the rest of the first round moves; with 2 blocks, whole rounds."""
    monkeypatch.setattr(cohort, "FEWEST_BLOCKS", blocks)
    serial = results(strategy, tmp_path / "serial", rounds=4)
    found, choice = without_choice(results(strategy, tmp_path / "auto", rounds=4, backend=AutoBackend()))
    assert choice == "ray"
    found.assert_same_bits(serial)


@pytest.mark.usefixtures("eager")
def test_run_moves_to_other_processes(user, results, tmp_path):
    rows = results(user.RecordsProcess(), tmp_path, rounds=3, backend=AutoBackend()).devices.splitlines()
    processes = {json.loads(row)["process"] for row in rows}
    assert processes
    assert os.getpid() not in processes


@pytest.mark.usefixtures("eager", "brief")
@pytest.mark.parametrize("evaluate_every", [1, 8])
def test_choice_names_the_seconds_of_both(evaluate_every, results, tmp_path):
    """Rounds of a millisecond: whichever is faster, the bits are those of one process."""
    serial = results(FedPer(), tmp_path / "serial", rounds=8, evaluate_every=evaluate_every)
    backend = AutoBackend()
    found, choice = without_choice(
        results(FedPer(), tmp_path / "auto", rounds=8, evaluate_every=evaluate_every, backend=backend)
    )
    assert re.fullmatch(
        r"(ray: \S+ s a round, \S+ s in this process|this process: \S+ s a round, \S+ s in ray)", choice
    )
    assert choice == backend.choice
    found.assert_same_bits(serial)


@pytest.mark.usefixtures("eager")
def test_interrupted_run_resumes_on_either_side(results, simulation, tmp_path):
    whole = results(FedPer(), tmp_path / "whole", rounds=5)
    with pytest.raises(DeathError):
        simulation(FedPer(), tmp_path / "run", rounds=5, backend=AutoBackend()).run(observers=[DiesAfterRound(3)])
    simulation(FedPer(), tmp_path / "run", rounds=5, backend=SerialBackend()).run(resume=True)
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


@pytest.mark.usefixtures("eager")
def test_run_that_actors_cannot_take_stays(results, simulation, tmp_path):
    backend = AutoBackend()
    run = simulation(FedAvg(), tmp_path, storage="memory://odt_sim/auto", backend=backend)
    assert run.run()["rounds"] == 3
    assert re.match(r"this process: Ray does not start \(run\.storage: node", backend.choice)


def test_device_with_a_time_limit_hangs_in_a_process_that_can_be_ended(user, results, tmp_path):
    backend = AutoBackend()
    rows = results(
        user.RecordsProcess(), tmp_path, fleet=Fleet(unseen=1, timeout=60), rounds=1, backend=backend
    ).devices
    assert os.getpid() not in {json.loads(row)["process"] for row in rows.splitlines()}
    assert backend.choice == "ray: fleet.timeout needs workers that can be ended"


@pytest.mark.usefixtures("eager")
def test_sweep_of_short_jobs_moves_in_the_end(results, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "_start_seconds", 5.0)
    monkeypatch.setattr(pace, "ROUND_ON_ACTORS", -1.0)  # actors save a second of each of 3 rounds
    choices = []
    for job in range(3):
        _, choice = without_choice(results(FedAvg(), tmp_path / str(job), backend=AutoBackend()))
        choices.append(choice)
    assert re.fullmatch(r"this process: \S+ s a round, \S+ s expected in ray", choices[0])
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
