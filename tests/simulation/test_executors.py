"""Every executor passes the tests of the contract; `tests/flower` has Flower's."""

import os

import pytest
from executor_conformance import ExecutorConformance

from odt_sim.simulation.executors import auto
from odt_sim.simulation.executors.auto import AutoBackend
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.simulation.executors.serial import SerialBackend


class TestSerial(ExecutorConformance):
    @pytest.fixture
    def executor(self):
        return lambda **_: SerialBackend()


class TestProcesses(ExecutorConformance):
    @pytest.fixture
    def executor(self):
        return lambda **_: ProcessesBackend(2)


class TestThreeProcesses(ExecutorConformance):
    pytestmark = pytest.mark.slow

    @pytest.fixture
    def executor(self):
        return lambda **_: ProcessesBackend(3)


class TestAuto(ExecutorConformance):
    """It moves to one process after the second round."""

    @pytest.fixture
    def executor(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
        monkeypatch.setattr(auto, "LONG", 60.0)
        monkeypatch.setattr(auto, "COMPARED", 1)
        return lambda **_: AutoBackend()


@pytest.mark.usefixtures("ray_session")
class TestRay(ExecutorConformance):
    @pytest.fixture
    def executor(self):
        return lambda **_: RayBackend(actors=2)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestRayActorForEachDevice(ExecutorConformance):
    @pytest.fixture
    def executor(self):
        return lambda **_: RayBackend(devices_per_actor=1)
