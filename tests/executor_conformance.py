"""The contract of `odt_sim.simulation.executors.executor.Executor`: a class with an executor inherits these tests."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from deaths import DeathError, DiesAfterRound
from threadpoolctl import threadpool_info, threadpool_limits

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan
from odt_sim.aggregators import Median, NormClipping
from odt_sim.attacks import RandomUpdates
from odt_sim.device.runtime import Runtime
from odt_sim.errors import InvocationError, SimulationError
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.persistence.storage import Folder
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job, Task, Trained
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.simulation.run import cohort
from odt_sim.simulation.run.messages import Assignment, Messages
from odt_sim.simulation.run.sums import join
from odt_sim.strategies import IFCA, FedAvg, FedPer, Local, Scaffold
from odt_sim.strategies.base import ServerState, Update
from odt_sim.testing import assert_same, outcome, random_data

FAILING = 2
"""The device that fails, in the second round."""

DEFAULTS = {
    "rounds": 3,
    "evaluate_every": 2,
    "plan": TrainingPlan(epochs=1, learning_rate=0.05),
    "fleet": Fleet(unseen=[0]),
}


class Fails(FedPer):
    """Fails on a device: sends NaN or a large update, raises an error of the model, or is wrong."""

    name = "fails"

    def __init__(self, how: str) -> None:
        self.how = how

    def local(self, device: Any, broadcast: Any) -> Update:
        update = super().local(device, broadcast)
        if (device.id, device.round) != (FAILING, 2):
            return update
        if self.how == "model":
            raise InvocationError("out of memory") from RuntimeError("out of memory")
        if self.how == "strategy":
            raise KeyError("mu")
        if self.how == "exit":
            raise SystemExit("no data")
        sent = {"v": np.array([np.nan])} if self.how == "nan" else {"v": np.array([3e6, 4e6])}
        return Update({**update.tensors, **sent}, update.weight, update.losses)


class SetsTheEntry(FedAvg):
    """Averages in place, in the mapping that it receives."""

    name = "fedavg"

    def aggregate(self, state: ServerState, updates: Any) -> ServerState:
        state = ServerState(dict(state.broadcast), state.private)
        state.broadcast["weights"] = state.weights + updates.mean["weights"]  # type: ignore[index]
        return state


class AddsToTheBroadcast(FedAvg):
    """Adds an entry to the mapping that a device receives, which must not reach other devices."""

    name = "fedavg"

    def local(self, device: Any, broadcast: Any) -> Update:
        if "seen" in broadcast:
            raise ValueError("the entry of another device")
        broadcast["seen"] = np.ones(1)
        return super().local(device, broadcast)


class SendsItsNumber(FedAvg):
    """Sends each device a tensor of its own, which is part of its model's records."""

    def message(self, state: ServerState, device: int) -> Any:
        return {**state.broadcast, "own": np.array([3.0 * device])}

    def deploy(self, device: Any, broadcast: Any) -> Any:
        device.records["own"] = float(broadcast["own"][0])
        device.records["threads"] = threads()
        return super().deploy(device, broadcast)

    def aggregate(self, state: ServerState, updates: Any) -> ServerState:
        after = super().aggregate(state, updates)
        return ServerState({**after.broadcast, "threads": np.array([threads()])})


def threads() -> int:
    """Return the most threads that a BLAS library of this process uses."""
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def share_of_first_class(outputs: Any, targets: Any) -> float:
    """Return the share of examples that are answered with the first class."""
    return float((outputs.argmax(1) == 0).mean())


RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "local": (Local(), {}),
    "fedavg": (FedAvg(), {}),
    "fedper": (FedPer(), {}),
    "scaffold": (Scaffold(), {"fleet": Fleet(cohort=3, evaluated=3, unseen=[0])}),
    "ifca": (IFCA(clusters=2), {}),
    "messages": (SendsItsNumber(), {}),
    "hostile": (FedAvg(), {"fleet": Fleet(hostile=1), "attack": RandomUpdates(0.1), "aggregator": Median()}),
    "stragglers": (FedAvg(), {"fleet": Fleet(stragglers=0.4), "plan": TrainingPlan(2, 0.05)}),
    "limited": (FedPer(), {"aggregator": NormClipping(0.1)}),
    "metrics": (FedPer(), {"metrics": [share_of_first_class], "metric": "share_of_first_class"}),
    "nan": (Fails("nan"), {}),
    "large": (Fails("large"), {}),
    "model": (Fails("model"), {}),
}
"""Strategies and settings of runs."""

SERIAL: dict[str, dict[str, Any]] = {}
"""What the runs leave on the serial backend."""


class ExecutorConformance:
    """Tests that every executor passes.

    Attributes:
        states_stay: Whether the coordinator stores the devices' states, so that a run can be resumed.
        unsupported: The names of runs that the executor refuses.
    """

    states_stay = True
    unsupported: ClassVar[set[str]] = set()

    @pytest.fixture
    def executor(self) -> Callable[..., Executor]:
        """Return a function that returns an executor for a simulation with the given arguments."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def blocks_of_several(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cohort, "FEWEST_BLOCKS", 2)

    @pytest.fixture
    def simulation(self, grouped: TrainableModel) -> Callable[..., Simulation]:
        def make(directory: Path, backend: Any, strategy: Any, **settings: Any) -> Simulation:
            arguments = {"model": grouped, "data": random_data(grouped, [9, 4, 2, 6, 5]), "strategy": strategy}
            arguments = {**arguments, **DEFAULTS, **settings}
            executor = backend(**arguments) if backend else SerialBackend()
            return Simulation(**arguments, directory=directory, backend=executor)

        return make

    @pytest.fixture
    def serial(self, simulation: Callable[..., Simulation], tmp_path: Path) -> Callable[[str], dict[str, Any]]:
        def run(name: str) -> dict[str, Any]:
            if name not in SERIAL:
                strategy, settings = RUNS[name]
                simulation(tmp_path / name, None, strategy, **settings).run(observers=[])
                SERIAL[name] = left(tmp_path / name)
            return SERIAL[name]

        return run

    @pytest.mark.parametrize("name", RUNS)
    def test_results_are_those_of_the_serial_backend(
        self, name: str, executor: Any, simulation: Any, serial: Any, tmp_path: Path
    ) -> None:
        if name in self.unsupported:
            pytest.skip("not supported")
        expected, (strategy, settings) = serial(name), RUNS[name]
        if not self.states_stay:  # the names of states have a round, a device and a tensor
            expected = {key: value for key, value in expected.items() if not re.match(r"\d+ \d+/", key)}
        with threadpool_limits(2, "blas"):  # devices use one
            simulation(tmp_path / "found", executor, strategy, **settings).run(observers=[])
        assert_same(left(tmp_path / "found"), expected)

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("nan", "update not finite"), ("large", "update too large"), ("model", "failed in LiteRT: out of memory")],
    )
    def test_failing_device_is_excluded(
        self, name: str, reason: str, executor: Any, simulation: Any, tmp_path: Path
    ) -> None:
        simulation(tmp_path, executor, RUNS[name][0]).run(observers=[])
        rounds = RunFolder(tmp_path).rounds()
        assert [row["excluded_reasons"] for row in rounds] == [{}, {FAILING: reason}, {}]

    @pytest.mark.parametrize("strategy", [SetsTheEntry(), AddsToTheBroadcast()], ids=lambda each: type(each).__name__)
    def test_changes_of_the_broadcast_in_place_change_no_bit(
        self, strategy: Any, executor: Any, simulation: Any, serial: Any, tmp_path: Path
    ) -> None:
        simulation(tmp_path / "found", executor, strategy).run(observers=[])
        assert_same(left(tmp_path / "found"), serial("fedavg"))

    @pytest.mark.parametrize(("how", "message"), [("strategy", "KeyError: 'mu'"), ("exit", "SystemExit: no data")])
    def test_error_of_a_strategy_is_one_line_and_the_next_run_works(
        self, how: str, message: str, executor: Any, simulation: Any, serial: Any, tmp_path: Path
    ) -> None:
        expected = (
            rf"strategy fails: failed on device {FAILING} in round 2 with {message} \(\S*conformance\.py:\d+\); corr"
        )
        with pytest.raises(SimulationError, match=expected) as caught:
            simulation(tmp_path / "fails", executor, Fails(how)).run(observers=[])
        assert "\n" not in str(caught.value)
        simulation(tmp_path / "next", executor, FedAvg()).run(observers=[])
        assert_same(left(tmp_path / "next"), serial("fedavg"))

    @pytest.mark.parametrize("name", ["local", "fedper"])
    def test_run_that_died_resumes_with_the_same_bits(
        self, name: str, executor: Any, simulation: Any, serial: Any, tmp_path: Path
    ) -> None:
        if not self.states_stay:
            pytest.skip("the devices' states are lost with the run")
        strategy, settings = RUNS[name]
        with pytest.raises(DeathError):
            simulation(tmp_path, executor, strategy, **settings).run(observers=[DiesAfterRound(2)])
        simulation(tmp_path, executor, strategy, **settings).run(resume=True, observers=[])
        assert_same(left(tmp_path), serial(name))

    def test_blocks_on_several_states_of_the_server_are_added_in_order(
        self, executor: Any, simulation: Any, grouped: TrainableModel, tmp_path: Path
    ) -> None:
        """As in a round on the clock, whose groups have tasks with `saves` and different broadcasts."""
        arguments = {"model": grouped, "data": random_data(grouped, [9, 4, 2, 6, 5]), "strategy": FedAvg(), **DEFAULTS}
        job = replace(simulation(tmp_path, None, FedAvg()).job, storage=Folder(tmp_path), fleet=Fleet())
        groups = [[Task("train", 1, (id,), saves=3) for id in ids] for ids in ((0, 3), (1, 2), (4,))]
        sums = []
        for tried in (SerialBackend(), executor(**{**arguments, "fleet": Fleet()})):
            tried.start()
            tried.open(job)
            trained = list[Trained]()
            for group in assigned(job, groups):
                tried.run(group, trained.append)
            sums.append(join(trained))
            tried.close()
        np.testing.assert_array_equal(sums[0].sums["weights"], sums[1].sums["weights"])
        assert sums[0].contributed == sums[1].contributed == [0, 3, 1, 2, 4]

    def test_blocks_without_a_job_are_refused(
        self, executor: Any, simulation: Any, grouped: Any, tmp_path: Path
    ) -> None:
        job = simulation(tmp_path, None, FedAvg()).job
        arguments = {"model": grouped, "data": job.data, "strategy": FedAvg(), **DEFAULTS}
        with pytest.raises(SimulationError, match="no job is open"):
            executor(**arguments).run(assigned(job, [[Task("evaluate", 1, (0,))]])[0], print)


def left(directory: Path) -> dict[str, Any]:
    """Return what a run left, without what depends on the division into blocks: the devices that share a file of states.

    A file with a state that is still needed may contain states of other devices that are not.
    """
    found = outcome(directory)
    found = {name: array[:, :2] if name.endswith(" versions") else array for name, array in found.items()}
    needed = {tuple(row) for name in found if name.endswith(" versions") for row in found[name].tolist()}

    def is_needed(name: str) -> bool:
        state = re.match(r"(\d+) (\d+)/", name)  # the round and the device
        return state is None or (int(state[2]), int(state[1])) in needed

    return {name: value for name, value in found.items() if is_needed(name)}


def assigned(job: Job, groups: list[list[Task]]) -> list[Assignment]:
    """Return groups of blocks, each on another state of the server."""
    initial = Runtime(job.model).initial
    states = [ServerState({"weights": initial * factor}) for factor in (1.0, 0.5, 2.0)]
    return [Assignment(group, Messages(job, state)) for group, state in zip(groups, states, strict=False)]
