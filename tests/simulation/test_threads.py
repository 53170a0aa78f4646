"""Blocks in threads of this process: their order, how many are ahead, errors, interruption and resuming."""

import threading
import time
from itertools import chain

import numpy as np
import pytest
from deaths import DeathError, DiesAfterRound
from hypothesis import given
from hypothesis import strategies as st

from odt_sim import Fleet, TrainingPlan
from odt_sim.device.runtime import Runtime
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.model.tensors import ServerState
from odt_sim.persistence.storage import Folder
from odt_sim.simulation import cohort
from odt_sim.simulation.job import Job, Task
from odt_sim.simulation.messages import Messages
from odt_sim.simulation.serial import SerialBackend
from odt_sim.simulation.sums import join
from odt_sim.simulation.threads import ThreadsBackend, in_turn
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedper import FedPer
from odt_sim.strategies.local import Local


@pytest.mark.parametrize(
    ("costs", "last", "order"),
    [
        ([], 4, []),
        ([1, 3, 2], 4, [1, 2, 0]),
        ([1, 3, 2, 2], 4, [1, 2, 3, 0]),
        ([1, 9, 5, 6, 7, 8], 3, [0, 1, 2, 5, 4, 3]),
    ],
)
def test_last_blocks_begin_with_the_costliest(costs, last, order):
    assert in_turn(costs, last) == order


@given(st.lists(st.integers(0, 9)), st.integers(1, 9))
def test_blocks_wait_for_none_that_has_not_begun(costs, last):
    """Block k is begun at the latest when k results were taken."""
    order = in_turn(costs, last)
    assert sorted(order) == list(range(len(costs)))
    assert all(order.index(number) < number + last for number in range(len(costs)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", r"device 4 in round 2 with KeyError: 'mu' \(\S*strategies\.py:\d+\); correct it"),
        ("ExitsInLocal", r"device \d in round 1 with SystemExit: no data \(\S*strategies\.py:\d+\); correct it"),
    ],
)
def test_error_of_a_strategy_is_that_of_the_serial_backend(name, message, user, simulation, tmp_path):
    errors = []
    for backend in (SerialBackend(), ThreadsBackend(2)):
        run = simulation(getattr(user, name)(), tmp_path / type(backend).__name__, backend=backend)
        with pytest.raises(SimulationError, match=f"^strategy {name}: failed on {message}") as caught:
            run.run()
        errors.append((str(caught.value), type(caught.value.__cause__)))
    assert errors[0] == errors[1]
    assert not own_threads()


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name == "devices"]


class WaitsForTheOther(FedAvg):
    """Lets each device wait until another one trains beside it."""

    def __init__(self, barrier):
        self._barrier = barrier

    def __deepcopy__(self, memory):
        return self

    def local(self, device, broadcast):
        self._barrier.wait(timeout=60)
        return super().local(device, broadcast)


def test_two_devices_train_at_once(simulation, results, tmp_path, monkeypatch):
    monkeypatch.setattr(cohort, "FEWEST_BLOCKS", 7)
    fleet = Fleet(cohort=4, unseen=1)
    found = results(WaitsForTheOther(threading.Barrier(2)), tmp_path / "2", fleet=fleet, backend=ThreadsBackend(2))
    assert [row["devices"] for row in found.rounds] == [4, 4, 4]


class KeepsSelf(FedAvg):
    """Counts on the object itself, which is not thread-safe if threads share it."""

    def __init__(self, used):
        self._used = used
        self._mine = None

    def __deepcopy__(self, memory):
        return type(self)(self._used)

    def local(self, device, broadcast):
        self._mine = device.id
        time.sleep(0.01)
        assert self._mine == device.id
        self._used.add(id(self))
        return super().local(device, broadcast)


@pytest.mark.parametrize("saves", [None, 3])
def test_blocks_of_several_calls_are_added_as_by_the_serial_backend(saves, momentum, fleet_data, tmp_path):
    """As a round on the clock adds those of its groups, whose tasks have `saves`."""
    job = Job(momentum, fleet_data, FedAvg(), TrainingPlan(learning_rate=0.05), 0, Folder(tmp_path), Fleet())
    state = ServerState({"weights": Runtime(momentum).initial})
    groups = [[Task("train", 1, (id,), saves=saves) for id in ids] for ids in ((0, 3, 5), (1, 2, 4))]
    sums = []
    for backend in (SerialBackend(), ThreadsBackend(2)):
        backend.open(job)
        calls = [backend.train(group, Messages(job, state)) for group in (groups if saves else groups[:1])]
        sums.append(join(chain.from_iterable(calls)))
        backend.close()
    np.testing.assert_array_equal(sums[0].sums["weights"], sums[1].sums["weights"])
    assert sums[0].contributed == sums[1].contributed


def test_each_thread_has_a_strategy_of_its_own(results, tmp_path, monkeypatch):
    monkeypatch.setattr(cohort, "FEWEST_BLOCKS", 7)
    used = set()
    strategy = KeepsSelf(used)
    results(strategy, tmp_path, backend=ThreadsBackend(2))
    assert len(used) == 2
    assert id(strategy) not in used


class HoldsALock(FedAvg):
    def __init__(self):
        self._lock = threading.Lock()


def test_strategy_that_cannot_be_copied_is_refused(simulation, tmp_path):
    run = simulation(HoldsALock(), tmp_path, backend=ThreadsBackend(2))
    with pytest.raises(
        SimulationError, match=r"^strategy HoldsALock: failed to be copied with TypeError: cannot pickle"
    ):
        run.run()


def test_time_limit_is_refused(simulation, tmp_path):
    run = simulation(FedAvg(), tmp_path, fleet=Fleet(unseen=1, timeout=5), backend=ThreadsBackend(2))
    with pytest.raises(ConfigurationError, match=r"^fleet\.timeout: expected null with backend=threads, found 5; only"):
        run.run()


@pytest.mark.parametrize("threads", [0, -1, True, 1.5])
def test_number_of_threads_is_checked(threads):
    with pytest.raises(ConfigurationError, match=r"^backend\.threads: expected null or a number of at least 1, found"):
        ThreadsBackend(threads)


@pytest.mark.parametrize("kind", [FedPer, Local])
def test_run_that_died_resumes_with_the_same_bits(kind, results, simulation, tmp_path):
    whole = results(kind(), tmp_path / "whole", rounds=5)
    with pytest.raises(DeathError):
        simulation(kind(), tmp_path / "run", rounds=5, backend=ThreadsBackend(2)).run(observers=[DiesAfterRound(3)])
    assert not own_threads()
    simulation(kind(), tmp_path / "run", rounds=5, backend=ThreadsBackend(3)).run(resume=True)
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


class Hangs(FedPer):
    """Never ends the second round; devices keep states, so that the first is committed before."""

    def local(self, device, broadcast):
        if device.round == 2:
            while True:
                device.train()
        return super().local(device, broadcast)


def test_run_that_ends_early_does_not_wait_for_the_round_begun_ahead(simulation, tmp_path):
    with pytest.raises(DeathError):
        simulation(Hangs(), tmp_path, backend=ThreadsBackend(2)).run(observers=[DiesAfterRound(1)])
    assert not own_threads()
