"""A conformance suite for strategies: a class of tests to subclass in pytest.

```python
from mine import Halfway
from odt_sim.testing import StrategyConformance

class TestHalfway(StrategyConformance):
    def strategy(self):
        return Halfway()
```

The tests run a few devices in this process and take seconds in all. `model` may be overridden too; the default is a
small perceptron, exported once, with a head, a body, embeddings, a gradient offset, and other capabilities that the
strategy needs, such as a loss term.
"""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim.data.devices.federated import FederatedData
from odt_sim.data.store.columns import arrays_of, rows_of
from odt_sim.device.checkpoint import read_tensors
from odt_sim.device.device import Device
from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.device.examples import Examples
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.random import random_rows
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.export.cache import exported, with_needs
from odt_sim.model.tensors import array_of, read_only
from odt_sim.model.trainable import TrainableModel
from odt_sim.settings import Fleet
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.simulation.executors.worker import Worker
from odt_sim.simulation.run.coordinator import Simulation
from odt_sim.simulation.run.messages import Assignment
from odt_sim.simulation.run.sums import joined
from odt_sim.strategies.base import ServerState, Strategy, Tensors

PLAN = TrainingPlan(epochs=2)
SMALL, POISONED = 2, 1
"""Ids of the device with less than a batch of examples, and of the device with NaN examples."""

PERCEPTRON = {
    "name": "conformance",
    "build": {"_target_": "odt_sim.export.zoo.mlp", "input_shape": [6], "classes": 3, "hidden": [5]},
    "loss": "sparse_categorical_crossentropy",
    "optimizer": {"name": "SGD", "learning_rate": 0.1},
    "batch_size": 4,
    "seed": 0,
    "train_groups": ["head", "body"],
    "embed": True,
    "gradient_offset": True,
}


class StrategyConformance:
    """Tests of a strategy; subclass it as `Test...` and return the strategy from `strategy`.

    Attributes:
        runtime: The runtime for the model's file.
    """

    runtime: RuntimeChoice = LITERT

    def strategy(self) -> Strategy:
        """Return a new strategy with the same settings in every call.

        Raises:
            NotImplementedError: The subclass does not override this method.
        """
        raise NotImplementedError(f"{type(self).__name__}.strategy: return the strategy to test")

    def model(self) -> TrainableModel:
        """Return a model with all capabilities that the strategy needs."""
        model = TrainableModel.load(exported(PERCEPTRON))
        missing = self.strategy().needed(model) - model.capabilities
        return TrainableModel.load(exported(with_needs(PERCEPTRON, missing))) if missing else model

    # --- reproducibility

    def test_equal_seeds_give_equal_bits(self, tmp_path: Path) -> None:
        """Randomness comes only from `device.random`, never from a clock or the order of a set."""
        assert_same(self.run(tmp_path / "one"), self.run(tmp_path / "other"))

    def test_separate_workers_give_equal_bits(self, tmp_path: Path) -> None:
        """Devices and rounds share nothing but `device.state`, updates and the broadcast."""
        assert_same(self.run(tmp_path / "shared"), self.run(tmp_path / "each", backend=WorkerForEach(self.runtime)))

    def test_resumed_run_gives_equal_bits(self, tmp_path: Path) -> None:
        """The server keeps everything in `ServerState`, a device in `device.state`."""
        with pytest.raises(DeathError):
            self.run(tmp_path / "died", backend=DiesInRound(3, self.runtime))
        resumed = self.run(tmp_path / "died", resume=True)
        assert_same(resumed, self.run(tmp_path / "whole"))

    def test_evaluation_changes_nothing(self, tmp_path: Path) -> None:
        """Changes made by `deploy` are discarded."""
        often, once = (self.run(tmp_path / str(every), evaluate_every=every) for every in (1, 3))
        for outcome in (often, once):
            outcome["last round"] = json.loads(outcome["rounds"])[-1]
        states = [f"devices/000/{id}.3.safetensors " for id in range(self.data().devices)]
        after = ("last round", "server.3.safetensors ", *states)
        assert_same(*({name: run[name] for name in run if name.startswith(after)} for run in (often, once)))

    def test_broadcast_is_not_modified(self) -> None:
        """Neither `local` nor `deploy` writes to the broadcast."""
        strategy, state = self.strategy(), self.state()
        before = _bytes(state.broadcast)
        for work in (strategy.local, strategy.deploy):
            work(self.device(0), strategy.message(state, 0))
            assert _bytes(state.broadcast) == before, f"{work.__name__} changes its broadcast"

    def test_examples_stay_unchanged(self) -> None:
        """Neither `local` nor `deploy` writes into a device's examples, which belong to the whole fleet."""
        strategy, state, device = self.strategy(), self.state(), self.device(0)
        splits = (device.train_examples, device.validation_examples, device.test_examples)
        before = [_bytes_of(split) for split in splits]
        for work in (strategy.local, strategy.deploy):
            work(device, strategy.message(state, 0))
            after = [_bytes_of(split) for split in splits]
            assert after == before, f"{work.__name__} changes the device's examples"

    # --- any fleet

    def test_cohort_and_unseen_devices(self, tmp_path: Path) -> None:
        """With cohorts of two of three seen devices and one unseen device, all devices get a model."""
        self.run(tmp_path, fleet=Fleet(cohort=2, unseen=1))
        rows, rounds = _lines(tmp_path / "devices.jsonl"), _lines(tmp_path / "rounds.jsonl")
        assert [row["device"] for row in rows] == [0, 1, 2, 3]
        assert np.isfinite([row["loss"] for row in rows]).all()
        assert {row["devices"] for row in rounds} == {4 if self.strategy().alone else 2}
        (unseen,) = (row["device"] for row in rows if not row["seen"])
        kept = {name.split("/")[0] for path in _state_files(tmp_path / "checkpoint") for name in read_tensors(path)[0]}
        assert self.strategy().alone or str(unseen) not in kept

    def test_stragglers(self, tmp_path: Path) -> None:
        """With two stragglers among four devices, the round drops them or uses their partial work."""
        fleet = Fleet(stragglers=0.5)
        one = self.run(tmp_path / "one", rounds=2, fleet=fleet)
        assert_same(one, self.run(tmp_path / "other", rounds=2, fleet=fleet, backend=WorkerForEach(self.runtime)))
        strategy, rounds = self.strategy(), _lines(tmp_path / "one" / "rounds.jsonl")
        found = {(row["devices"], row["stragglers"]) for row in rounds}
        assert found == {(4, 0) if strategy.alone else (4, 2) if strategy.partial_work else (2, 2)}

    def test_device_smaller_than_a_batch_trains(self) -> None:
        """No example is dropped because a batch is not full."""
        device = self.device(SMALL)
        assert len(device.train_examples) < device.model.batch_size
        before = device.parameters()
        strategy = self.strategy()
        update = strategy.local(device, strategy.message(self.state(), SMALL))
        assert len(update.losses)
        assert update.isfinite()
        assert not np.array_equal(device.parameters().vector, before.vector)

    def test_diverged_device_is_excluded(self, tmp_path: Path) -> None:
        """A device with NaN examples is excluded in every round; states and all other devices stay finite."""
        data = self.data()
        arrays = arrays_of(data.x)
        if not any(array.dtype == np.float32 for array in arrays.values()):
            pytest.skip("the model takes integers, none of which is NaN")
        x = rows_of({name: _poisoned(array, data.train(POISONED)) for name, array in arrays.items()})
        outcome = self.run(tmp_path, data=replace(data, x=x))
        assert {tuple(row["excluded_devices"]) for row in _lines(tmp_path / "rounds.jsonl")} == {(POISONED,)}
        assert np.isfinite(
            [row["loss"] for row in _lines(tmp_path / "devices.jsonl") if row["device"] != POISONED]
        ).all()
        for name, found in outcome.items():
            if isinstance(found, np.ndarray):
                assert np.isfinite(found).all(), f"{name} is not finite"

    # --- runs

    def data(self) -> FederatedData:
        """Return four devices with examples that fit the model; one has fewer than a batch to train on."""
        batch = self.model().batch_size
        return random_data(self.model(), [2 * batch + 1, batch, max(1, batch // 2), batch + 2])

    def run(
        self,
        directory: Path,
        *,
        rounds: int = 3,
        data: FederatedData | None = None,
        resume: bool = False,
        evaluate_every: int = 1,
        fleet: Fleet | None = None,
        backend: Executor | None = None,
    ) -> dict[str, Any]:
        """Run the strategy.

        Args:
            directory: Folder of the run.
            rounds: Number of rounds.
            data: The devices' examples; `data()` by default.
            resume: Whether to resume the folder's run.
            evaluate_every: Rounds between two evaluations.
            fleet: Participation; all devices by default.
            backend: The backend that runs the devices; one worker in this process by default.

        Returns:
            The parts that are equal for equal runs, by name: the checkpoint's arrays and the lines of the records.
        """
        Simulation(
            self.model(),
            data or self.data(),
            self.strategy(),
            rounds=rounds,
            directory=directory,
            fleet=fleet,
            plan=PLAN,
            evaluate_every=evaluate_every,
            seed=1,
            backend=backend or SerialBackend(self.runtime.name, self.runtime.python),
        ).run(resume=resume, observers=[])
        return outcome(directory)

    def state(self) -> ServerState:
        """Return the server's state before the first round."""
        return self.strategy().init(self.device(0).parameters())

    def device(self, id: int) -> Device:
        """Return a device as in the first round."""
        data = self.data()
        splits = [Examples(data.x, data.y, part(id)) for part in (data.train, data.validation, data.test)]
        model = self.model()
        pool = RuntimePool(model, start=self.runtime)
        return Device(model, *splits, seed=1, id=id, round=1, plan=PLAN, pool=pool)


def random_data(model: TrainableModel, train_sizes: Sequence[int]) -> FederatedData:
    """Draw examples that fit a model; every call draws the same.

    Args:
        model: The model; integer inputs are 0 or 1.
        train_sizes: Number of training examples of each device; it also gets three for validation and four for testing.
    """
    random = np.random.default_rng(0)
    ends = np.cumsum([0, *(size for train in train_sizes for size in (train, 3, 4))])
    offsets = np.array([ends[3 * i : 3 * i + 4] for i in range(len(train_sizes))])
    count = int(ends[-1])
    x, y = random_rows(model, random, count)
    classes = model.classes_by_target if len(model.targets) > 1 else model.classes
    return FederatedData("random", x, y, classes, np.arange(count), offsets)


def _poisoned(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return a copy with NaN in the given rows if the array is float32."""
    copy = array.copy()
    if array.dtype == np.float32:
        copy[rows] = np.nan
    return copy


def _bytes_of(examples: Examples) -> list[bytes]:
    arrays = [*arrays_of(examples.x).values(), *arrays_of(examples.y).values()]
    return [array.tobytes() for array in arrays]


class DeathError(BaseException):
    """The deliberate death of the coordinator; no `Exception`, so that no error handler can catch it."""


class DiesInRound(SerialBackend):
    """A backend that does all of a round's work, writes the devices' states, and dies before the round is committed."""

    def __init__(self, round: int, runtime: RuntimeChoice = LITERT) -> None:
        """Create the backend; it survives earlier rounds.

        Args:
            round: The round in which it dies.
            runtime: The runtime for the model's file.
        """
        super().__init__(runtime.name, runtime.python)
        self._round = round

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run blocks in order.

        Raises:
            DeathError: The round is the one to die in.
        """
        super().run(assignment, take)
        if assignment.trains and assignment.tasks[0].round == self._round:
            raise DeathError


class WorkerForEach(Executor):
    """A backend with a fresh worker, a copy of the strategy and a read-only broadcast for each device and round.

    `backend.devices_per_actor=1` does the same in separate processes, if all of them die after every call.
    """

    def __init__(self, runtime: RuntimeChoice = LITERT) -> None:
        """Create a backend without a job."""
        self.runtime = runtime
        self._job: Job | None = None

    def open(self, job: Job) -> None:
        """Copy the strategy in its state before the first round."""
        self._job = replace(job, strategy=copy.deepcopy(job.strategy))

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run blocks in order, device by device."""
        tasks, messages = assignment
        for task in tasks:
            parts = messages.addressed(task).each()
            take(joined(task, [self._fresh().run(part, read_only(messages.broadcast)) for part in parts]))

    def close(self) -> None:
        """Drop the job."""
        self._job = None

    def _fresh(self) -> Worker:
        assert self._job is not None
        return Worker(replace(self._job, strategy=copy.deepcopy(self._job.strategy)))


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Check that two runs left the same bits.

    Raises:
        AssertionError: The runs differ; the message names the entries.
    """
    assert one.keys() == other.keys(), f"only one of the runs has {sorted(one.keys() ^ other.keys())}"
    differ = [name for name in one if _plain(one[name]) != _plain(other[name])]
    assert not differ, f"the runs differ in {', '.join(differ)}"


def _plain(found: Any) -> Any:
    return (found.dtype.str, found.shape, found.tobytes()) if isinstance(found, np.ndarray) else found


def outcome(directory: Path) -> dict[str, Any]:
    """Return what a run left: the arrays of commits and device states, and the records without durations.

    Device arrays are named by round and device, because backends may group them into different files.
    """
    checkpoint = directory / "checkpoint"
    files = {path.name: path for path in checkpoint.glob("*.safetensors") if not path.name.startswith("versions")}
    found: dict[str, Any] = {
        f"{title} {name}": array
        for title, path in [*files.items(), *((path.name.split(".")[1], path) for path in _state_files(checkpoint))]
        for name, array in read_tensors(path)[0].items()
    }
    rounds = [
        {name: value for name, value in row.items() if name != "seconds"} for row in _lines(directory / "rounds.jsonl")
    ]
    return {**found, "rounds": json.dumps(rounds), "devices": json.dumps(_lines(directory / "devices.jsonl"))}


def _state_files(checkpoint: Path) -> list[Path]:
    return sorted(checkpoint.glob("devices/*/*"))


def _bytes(tensors: Tensors) -> dict[str, bytes]:
    return {name: array_of(tensor).tobytes() for name, tensor in tensors.items()}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
