"""The order in which devices and workers finish does not change the bits of results."""

import importlib
from pathlib import Path

import pytest
from slow import slow_except

from odt_sim import Fleet
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.simulation.run import cohort

NAMES = ["LateDitto", "LateFedAdam", "LateScaffold"]
BACKENDS = {
    "2 actors": lambda: RayBackend(actors=2),
    "2 processes": lambda: ProcessesBackend(2),
    "8 processes": lambda: ProcessesBackend(8),
}
FAST = ["2 actors", "2 processes"]

pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture
def late(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("late_strategies")


@pytest.fixture(autouse=True)
def a_block_a_device(monkeypatch):
    """Cut seven blocks, which can finish in many orders."""
    monkeypatch.setattr(cohort, "FEWEST_BLOCKS", 7)


@pytest.fixture(scope="module")
def known():
    """Return the serial results by the strategy's name."""
    return {}


CASES = [*((backend, name) for backend in FAST for name in NAMES), ("8 processes", "LateScaffold")]
"""All strategies on two workers, and one on eight; a device an actor is in test_executors.py."""


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "name"), slow_except([(backend, NAMES[0]) for backend in FAST], CASES))
def test_order_of_finishing_devices_changes_no_bit(backend, name, late, grouped, known, results, tmp_path):
    kind, settings = getattr(late, name), {"model": grouped, "fleet": Fleet(unseen=0)}
    if name not in known:
        known[name] = results(kind(None), tmp_path / "serial", **settings)
    seed = list(BACKENDS).index(backend)
    found = results(kind(seed), tmp_path / "found", **settings, backend=BACKENDS[backend]())
    found.assert_same_bits(known[name])
