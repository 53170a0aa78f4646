"""Blocks in this process and its forks: order, errors, deaths, calls in flight, interruption and resuming."""

import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar

import numpy as np
import psutil
import pytest
from deaths import DeathError

from odt_sim import Fleet, TrainingPlan
from odt_sim.device.embedding_cache import EmbeddingCache
from odt_sim.device.scoring import EngineScoring
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.persistence.storage import Folder
from odt_sim.simulation.executors import processes
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.run import cohort
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedper import FedPer
from odt_sim.strategies.shared_parts.head_only import HeadOnly


@pytest.fixture
def single_blocks(monkeypatch):
    """Let each device be a block."""
    monkeypatch.setattr(cohort, "FEWEST_BLOCKS", 7)


class WaitsForTheOther(FedAvg):
    """Each device waits until another one trains; an attribute can be neither copied nor pickled."""

    def __init__(self):
        self._barrier, self._lock = multiprocessing.get_context("fork").Barrier(2), threading.Lock()

    def local(self, device, broadcast):
        self._barrier.wait(timeout=60)
        return super().local(device, broadcast)


@pytest.mark.usefixtures("single_blocks")
def test_two_devices_train_at_once(results, tmp_path):
    fleet = Fleet(cohort=4, unseen=1)
    found = results(WaitsForTheOther(), tmp_path, fleet=fleet, backend=ProcessesBackend(2))
    assert [row["devices"] for row in found.rounds] == [4, 4, 4]


class Elsewhere(FedAvg):
    """A strategy that runs an action in helper processes."""

    def __init__(self, act):
        self._act, self._process = act, os.getpid()

    def local(self, device, broadcast):
        if os.getpid() != self._process:
            self._act(device)
        return super().local(device, broadcast)


class CountsFrozen(FedAvg):
    """A strategy that counts the objects exempt from garbage collection."""

    counts: ClassVar = []

    def aggregate(self, state, updates):
        self.counts.append(gc.get_freeze_count())
        return super().aggregate(state, updates)


def test_collections_of_the_run_leave_shared_pages_alone(results, tmp_path):
    results(CountsFrozen(), tmp_path, rounds=2, backend=ProcessesBackend(2))
    assert min(CountsFrozen.counts) > 1000
    assert gc.get_freeze_count() == 0


class HeadsInTwo(HeadOnly):
    """A strategy that trains devices in both of two processes in the first two rounds."""

    name = "head_only"

    def __init__(self):
        self._barrier = multiprocessing.get_context("fork").Barrier(2)

    def local(self, device, broadcast):
        if device.round <= 2:
            self._barrier.wait(timeout=60)
        return super().local(device, broadcast)


@pytest.mark.usefixtures("single_blocks")
def test_no_process_computes_embeddings_that_another_one_has(grouped, results, tmp_path, monkeypatch):
    """Applies to embeddings of training examples and to those needed only for evaluation."""
    compute, file = EngineScoring._embeddings, tmp_path / "computed"

    def recorded(scoring, x):
        with file.open("a") as lines:
            lines.write(f"{scoring._device}: {len(x)} examples\n")
        return compute(scoring, x)

    def found(strategy, folder, **settings):
        ran = results(strategy, folder, model=grouped, rounds=4, evaluate_every=4, **settings)
        computed = sorted(file.read_text().splitlines())
        file.unlink()
        return ran, computed

    monkeypatch.setattr(EngineScoring, "_embeddings", recorded)
    serial, expected = found(HeadOnly(), tmp_path / "serial")
    run, computed = found(HeadsInTwo(), tmp_path / "processes", backend=ProcessesBackend(2))
    run.assert_same_bits(serial)
    assert computed == expected


def dies(device):
    os.kill(os.getpid(), signal.SIGKILL)


def dies_after_round_1(device):
    """Die in round 2, or in a later round if the main process was faster."""
    if device.round > 1:
        dies(device)


def fails(device):
    raise MemoryError


@pytest.mark.usefixtures("single_blocks")
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("act", [dies, dies_after_round_1])
def test_run_whose_helper_dies_goes_on_in_one_process(act, processes, results, tmp_path):
    serial = results(Elsewhere(act), tmp_path / "serial", rounds=5)
    with pytest.warns(
        UserWarning, match=r"^backend processes: a process died of signal 9; the run continues in one pr"
    ):
        found = results(Elsewhere(act), tmp_path / "found", rounds=5, backend=ProcessesBackend(processes))
    found.assert_same_bits(serial)
    assert not multiprocessing.active_children()


class EndsProcess(BaseException):
    pass


def ends(device):
    raise EndsProcess(f"on device {device.id}")


@pytest.mark.usefixtures("single_blocks")
def test_error_that_ends_a_helper_is_printed(results, tmp_path, capfd):
    with pytest.warns(UserWarning, match=r"^backend processes: a process died with exit code 1; the run continues"):
        results(Elsewhere(ends), tmp_path, rounds=5, backend=ProcessesBackend(2))
    assert "EndsProcess: on device" in capfd.readouterr().err


@pytest.mark.usefixtures("single_blocks")
def test_block_that_fails_in_a_helper_is_done_here(results, tmp_path):
    serial = results(Elsewhere(fails), tmp_path / "serial")
    results(Elsewhere(fails), tmp_path / "found", backend=ProcessesBackend(2)).assert_same_bits(serial)


class Speaks(FedAvg):
    def local(self, device, broadcast):
        print(f"device {device.id}")
        print("error", file=sys.stderr)
        return super().local(device, broadcast)


@pytest.mark.usefixtures("single_blocks")
def test_what_a_strategy_prints_is_seen_once(results, tmp_path, capfd):
    results(Speaks(), tmp_path, rounds=2, backend=ProcessesBackend(3))
    printed = capfd.readouterr()
    assert printed.out.count("device") == printed.err.count("error") == 12


class SpeaksInHelpers(WaitsForTheOther):
    def __init__(self):
        super().__init__()
        self._process = os.getpid()

    def local(self, device, broadcast):
        if os.getpid() != self._process:
            print(device.id)
        return super().local(device, broadcast)


@pytest.mark.usefixtures("single_blocks")
def test_what_helpers_print_comes_in_the_order_of_devices(results, tmp_path, capfd):
    fleet = Fleet(cohort=6, unseen=1)
    results(SpeaksInHelpers(), tmp_path, rounds=1, fleet=fleet, backend=ProcessesBackend(2))
    printed = capfd.readouterr().out.split()
    assert len(printed) == 3
    assert printed == sorted(printed)


def test_time_limit_is_refused(simulation, tmp_path):
    run = simulation(FedAvg(), tmp_path, fleet=Fleet(unseen=1, timeout=5), backend=ProcessesBackend(2))
    with pytest.raises(
        ConfigurationError, match=r"^fleet\.timeout: expected null with backend=processes, found 5; only"
    ):
        run.run()


def test_process_that_may_have_no_others_is_refused(simulation, tmp_path, monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(SimulationError, match=r"^backend processes: cannot start process 2 \(daemonic .*; use backend"):
        simulation(FedAvg(), tmp_path, backend=ProcessesBackend(2)).run()


def test_storage_of_this_process_alone_is_refused(simulation, tmp_path):
    run = simulation(FedPer(), tmp_path, storage="memory://odt_sim/processes", backend=ProcessesBackend(2))
    with pytest.raises(
        SimulationError, match=r"^run\.storage: only this process can access memory://odt_sim/processes/; choo"
    ):
        run.run()


@pytest.mark.parametrize("processes", [0, -1, True, 1.5])
def test_number_of_processes_is_checked(processes):
    with pytest.raises(
        ConfigurationError, match=r"^backend\.processes: expected null or a number of at least 1, found"
    ):
        ProcessesBackend(processes)


def stops(device):
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.usefixtures("single_blocks")
def test_run_whose_helper_is_stopped_goes_on_in_one_process(results, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.2)
    serial = results(Elsewhere(stops), tmp_path / "serial", rounds=5)
    with pytest.warns(
        UserWarning, match=r"^backend processes: a process was stopped; the run continues in one process"
    ):
        found = results(Elsewhere(stops), tmp_path / "found", rounds=5, backend=ProcessesBackend(2))
    found.assert_same_bits(serial)
    assert not multiprocessing.active_children()


@pytest.fixture
def helpers(momentum, fleet_data, tmp_path):
    """Return one helper."""
    job = Job(momentum, fleet_data, FedAvg(), TrainingPlan(learning_rate=0.05), 0, Folder(tmp_path), Fleet())
    helpers = processes.Helpers(1, job, EmbeddingCache())
    yield helpers
    helpers.close()


def test_helper_that_is_stopped_while_it_owes_nothing_does_not_halt_the_run(helpers, monkeypatch):
    """A stopped helper reads no messages, so its pipe fills up."""
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    [helper] = multiprocessing.active_children()
    os.kill(helper.pid, signal.SIGSTOP)

    def sends_much():
        for _ in range(500):
            helpers.begin([], [], {"weights": np.zeros(1 << 11, np.float32)})
            helpers.results()
        helpers.results(wait_for_one=True)

    with pytest.warns(UserWarning, match=r"^backend processes: a process was stopped; the run continues"):
        sends_much()
    assert len(helpers) == 0


def test_limit_of_file_sizes_leaves_one_process(helpers):
    """As by `ulimit -f`: arrays go through files in memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, hard))
    try:
        with pytest.warns(UserWarning, match=r"^backend processes: a process cannot share memory \(File too large\)"):
            helpers.begin([], [], {"weights": np.zeros(1 << 20, np.float32)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(helpers) == 0


class Hangs(FedPer):
    """A strategy that never ends the second round."""

    def local(self, device, broadcast):
        if device.round == 2:
            raise DeathError
        return super().local(device, broadcast)


def test_helpers_are_killed_while_they_work(simulation, tmp_path):
    with pytest.raises(DeathError):
        simulation(Hangs(), tmp_path, backend=ProcessesBackend(2)).run()
    assert not multiprocessing.active_children()


HELPERS = """
import os, time
from types import SimpleNamespace
from odt_sim.device.embedding_cache import EmbeddingCache
from odt_sim.simulation.executors import processes
from odt_sim.simulation.executors.job import Task

class Worker:
    embeddings = EmbeddingCache()

    def learn(self, embeddings):
        pass

    def run(self, task, received):
        os.write(1, f"{os.getpid()}\\n".encode())
        time.sleep(60)

processes.Worker, processes.replace = lambda job, embeddings: Worker(), lambda job, **_: job
helpers = processes.Helpers(2, SimpleNamespace(storage=None), Worker().embeddings)
helpers.begin([Task("train", 1, (i,)) for i in range(2)], [[0], [1]], {})
time.sleep(60)
"""


def test_helpers_end_with_a_process_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", HELPERS], stdout=subprocess.PIPE, text=True) as child:
        helpers = [psutil.Process(int(child.stdout.readline())) for _ in range(2)]
        child.kill()
    until = time.monotonic() + 30
    while any(helper.is_running() and helper.status() != psutil.STATUS_ZOMBIE for helper in helpers):
        assert time.monotonic() < until
        time.sleep(0.01)
