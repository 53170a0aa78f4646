"""Every schedule on every backend: a round trains several groups of devices, each on another state of the server."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odt_sim.simulation.executors import auto
from odt_sim.simulation.executors.auto import AutoBackend
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedper import FedPer

SCHEDULES = {
    "synchronous": {"kind": "synchronous"},
    "overcommit": {"kind": "synchronous", "overselection": 1.5},
    "fedbuff": {"kind": "fedbuff", "concurrency": 4, "buffer": 2},
    "fedasync": {"kind": "fedasync", "concurrency": 3},
}


@pytest.fixture
def runs(momentum, on_clock, results, tmp_path_factory):
    """Return a function that runs a strategy on a backend, without the backend's choice in the summary."""

    def run(schedule, strategy, backend, seed=0):
        fleet = on_clock(momentum, SCHEDULES[schedule], cohort=3, unseen=1)
        folder = tmp_path_factory.mktemp("run")
        found = results(strategy, folder, model=momentum, fleet=fleet, rounds=7, seed=seed, backend=backend)
        found.summary["environment"].pop("backend", None)
        return found

    return run


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_schedule_gives_the_serial_bits_in_processes(data, runs, monkeypatch):
    """`auto` changes places after a round or two."""
    monkeypatch.setattr(auto, "LONG", 60.0)
    monkeypatch.setattr(auto, "COMPARED", data.draw(st.sampled_from([1, 2])))
    schedule, seed = data.draw(st.sampled_from(sorted(SCHEDULES))), data.draw(st.integers(0, 9))
    strategy = data.draw(st.sampled_from([FedAvg, FedPer]))
    serial = runs(schedule, strategy(), SerialBackend(), seed)
    for backend in (ProcessesBackend(2), AutoBackend()):
        runs(schedule, strategy(), backend, seed).assert_same_bits(serial)


@pytest.mark.parametrize("schedule", ["synchronous", "fedbuff"])
@pytest.mark.usefixtures("ray_session")
def test_schedule_gives_the_serial_bits_on_ray(schedule, runs):
    runs(schedule, FedPer(), RayBackend(actors=2)).assert_same_bits(runs(schedule, FedPer(), SerialBackend()))
