"""What every strategy should do, as tests that a strategy of one's own inherits in pytest.

```python
from mine import Halfway
from odt_sim.testing import StrategyConformance

class TestHalfway(StrategyConformance):
    def strategy(self):
        return Halfway()
```

The runs are of a few devices, in this process, and take seconds in all. `model` may be overridden, too: by default it is a
small perceptron, exported once, which has a head, a body, embeddings and a gradient offset.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim.data.federated import FederatedData
from odt_sim.device.checkpoint import read_tensors
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.plan import TrainingPlan
from odt_sim.export.cache import exported
from odt_sim.model.trainable import TrainableModel
from odt_sim.simulation.backend import Backend
from odt_sim.simulation.block import Job, Task, Trained, Worker, join
from odt_sim.simulation.cohort import Fleet
from odt_sim.simulation.coordinator import Simulation
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.serial import SerialBackend
from odt_sim.strategies.base import Strategy, Tensors, array_of, read_only

PLAN = TrainingPlan(epochs=2)
SMALL, POISONED = 2, 1
"""The device that has fewer examples than a batch, and the one whose examples become NaN."""

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
    """Tests of a strategy; a subclass whose name begins with `Test` says which."""

    def strategy(self) -> Strategy:
        """Returns a new strategy, equal to the last one.

        Raises:
            NotImplementedError: The subclass does not say which.
        """
        raise NotImplementedError(f"{type(self).__name__}.strategy: return the strategy to test")

    def model(self) -> TrainableModel:
        """Returns a model that has what the strategy needs."""
        return TrainableModel.load(exported(PERCEPTRON))

    # --- the same bits -----------------------------------------------------------------------------------------------

    def test_equal_seeds_give_equal_bits(self, tmp_path: Path) -> None:
        """Two runs are equal: whatever is random comes from `device.random`, and nothing from a clock or a set's order."""
        assert_same(self.run(tmp_path / "one"), self.run(tmp_path / "other"))

    def test_a_worker_for_each_device_gives_the_same_bits(self, tmp_path: Path) -> None:
        """Nothing goes from device to device, or from round to round, but by `device.state`, update and broadcast."""
        assert_same(self.run(tmp_path / "shared"), self.run(tmp_path / "each", backend=WorkerForEach()))

    def test_a_run_that_goes_on_gives_the_same_bits(self, tmp_path: Path) -> None:
        """What the server knows is in the `ServerState`, and what a device knows in `device.state`."""
        with pytest.raises(DeathError):
            self.run(tmp_path / "died", backend=DiesInRound(3))
        resumed = self.run(tmp_path / "died", resume=True)
        assert_same(resumed, self.run(tmp_path / "whole"))

    def test_evaluating_changes_nothing(self, tmp_path: Path) -> None:
        """What `deploy` trains or writes is kept nowhere."""
        often, once = (self.run(tmp_path / str(every), evaluate_every=every) for every in (1, 3))
        for outcome in (often, once):
            outcome["last round"] = json.loads(outcome["rounds"])[-1]
        states = [f"devices/000/{id}.3.safetensors " for id in range(self.data().devices)]
        after = ("last round", "server.3.safetensors ", *states)
        assert_same(*({name: run[name] for name in run if name.startswith(after)} for run in (often, once)))

    def test_the_broadcast_is_left_as_it_was(self) -> None:
        """Neither `local` nor `deploy` writes into what all devices receive."""
        strategy, broadcast = self.strategy(), self.broadcast()
        before = _bytes(broadcast)
        for work in (strategy.local, strategy.deploy):
            work(self.device(0), strategy.message(broadcast, 0))
            assert _bytes(broadcast) == before, f"{work.__name__} changes its broadcast"

    def test_examples_stay_unchanged(self) -> None:
        """Neither `local` nor `deploy` writes into a device's examples, which belong to the whole fleet."""
        strategy, broadcast, device = self.strategy(), self.broadcast(), self.device(0)
        splits = (device.train_examples, device.validation_examples, device.test_examples)
        before = [(split.x.tobytes(), split.y.tobytes()) for split in splits]
        for work in (strategy.local, strategy.deploy):
            work(device, strategy.message(broadcast, 0))
            after = [(split.x.tobytes(), split.y.tobytes()) for split in splits]
            assert after == before, f"{work.__name__} changes the device's examples"

    # --- any fleet ---------------------------------------------------------------------------------------------------

    def test_a_cohort_and_unseen_devices(self, tmp_path: Path) -> None:
        """Two of three devices a round, and one that never takes part: all of them get a model."""
        self.run(tmp_path, fleet=Fleet(cohort=2, unseen=1))
        rows, rounds = _lines(tmp_path / "devices.jsonl"), _lines(tmp_path / "rounds.jsonl")
        assert [row["device"] for row in rows] == [0, 1, 2, 3]
        assert np.isfinite([row["loss"] for row in rows]).all()
        assert {row["devices"] for row in rounds} == {4 if self.strategy().alone else 2}
        (unseen,) = (row["device"] for row in rows if not row["seen"])
        kept = {name.split("/")[0] for path in _state_files(tmp_path / "checkpoint") for name in read_tensors(path)[0]}
        assert self.strategy().alone or str(unseen) not in kept

    def test_stragglers(self, tmp_path: Path) -> None:
        """Two of four devices are too slow: the round goes on without them, or with the part of the work that they did."""
        fleet = Fleet(stragglers=0.5)
        one = self.run(tmp_path / "one", rounds=2, fleet=fleet)
        assert_same(one, self.run(tmp_path / "other", rounds=2, fleet=fleet, backend=WorkerForEach()))
        strategy, rounds = self.strategy(), _lines(tmp_path / "one" / "rounds.jsonl")
        found = {(row["devices"], row["stragglers"]) for row in rounds}
        assert found == {(4, 0) if strategy.alone else (4, 2) if strategy.partial_work else (2, 2)}

    def test_a_device_smaller_than_a_batch_trains(self) -> None:
        """No example is dropped because too few others are there."""
        device = self.device(SMALL)
        assert len(device.train_examples) < device.model.batch_size
        before = device.parameters()
        strategy = self.strategy()
        update = strategy.local(device, strategy.message(self.broadcast(), SMALL))
        assert len(update.losses)
        assert update.isfinite()
        assert not np.array_equal(device.parameters().vector, before.vector)

    def test_a_device_that_diverges_harms_no_other(self, tmp_path: Path) -> None:
        """A device whose examples are NaN is left out of every round; all that is kept, and all others, stay finite."""
        data = self.data()
        if data.x.dtype != np.float32:
            pytest.skip("the model takes integers, none of which is NaN")
        x = data.x.copy()
        x[data.train(POISONED)] = np.nan
        outcome = self.run(tmp_path, data=replace(data, x=x))
        assert {tuple(row["excluded_devices"]) for row in _lines(tmp_path / "rounds.jsonl")} == {(POISONED,)}
        assert np.isfinite(
            [row["loss"] for row in _lines(tmp_path / "devices.jsonl") if row["device"] != POISONED]
        ).all()
        for name, found in outcome.items():
            if isinstance(found, np.ndarray):
                assert np.isfinite(found).all(), f"{name} is not finite"

    # --- what the tests run ------------------------------------------------------------------------------------------

    def data(self) -> FederatedData:
        """Returns four devices with examples that fit the model; one has fewer than a batch to train on."""
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
        backend: Backend | None = None,
    ) -> dict[str, Any]:
        """Runs the strategy.

        Args:
            directory: The run's folder.
            rounds: How many rounds.
            data: The devices' examples; `data()` by default.
            resume: Whether to go on with the folder's run.
            evaluate_every: Rounds between two evaluations.
            fleet: Who takes part; all devices by default.
            backend: Where devices run; all by one worker in this process by default.

        Returns:
            What is equal for equal runs, by name: the checkpoint's arrays, and the records' lines.
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
            backend=backend,
        ).run(resume=resume)
        return _outcome(directory)

    def broadcast(self) -> Tensors:
        """Returns what goes out in the first round."""
        return self.strategy().init(self.device(0).parameters()).broadcast

    def device(self, id: int) -> Device:
        """Returns a device as it is in the first round."""
        data = self.data()
        splits = [Examples(data.x, data.y, part(id)) for part in (data.train, data.validation, data.test)]
        return Device(self.model(), *splits, seed=1, id=id, round=1, plan=PLAN)


def random_data(model: TrainableModel, train_sizes: Sequence[int]) -> FederatedData:
    """Draws examples that fit a model; the same ones in every call.

    Args:
        model: Its inputs and targets; integer inputs are 0 or 1.
        train_sizes: How many training examples each device has, beside three of validation and four of test.
    """
    random = np.random.default_rng(0)
    ends = np.cumsum([0, *(size for train in train_sizes for size in (train, 3, 4))])
    offsets = np.array([ends[3 * i : 3 * i + 4] for i in range(len(train_sizes))])
    count = int(ends[-1])
    shape = (count, *model.x.shape[1:])
    integers = np.issubdtype(model.x.dtype, np.integer)
    x = random.integers(0, 2, shape) if integers else random.normal(size=shape)
    y = _targets(model, random, count)
    return FederatedData("random", x.astype(model.x.dtype), y, model.classes, np.arange(count), offsets)


def _targets(model: TrainableModel, random: np.random.Generator, count: int) -> NDArray[Any]:
    if model.classes is None:
        return random.normal(size=(count, *model.y.shape[1:])).astype(np.float32)
    labels = random.integers(0, model.classes, (count, *model.y.shape[1:-1])).astype(np.int32)
    one_hot = model.y.shape[-1] == model.classes and len(model.y.shape) > 1
    return np.eye(model.classes, dtype=np.float32)[labels] if one_hot else labels


class DeathError(BaseException):
    """The deliberate death of the coordinator; no `Exception`, so that no handler of errors survives it."""


class DiesInRound(SerialBackend):
    """Does all of a round's work, writes what devices keep, and dies before any of it is committed."""

    def __init__(self, round: int) -> None:
        """Lives for the rounds before.

        Args:
            round: In which it dies.
        """
        super().__init__()
        self._round = round

    def train(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[Trained]:
        """Trains blocks in order.

        Raises:
            DeathError: It is the round.
        """
        yield from super().train(tasks, broadcast)
        if tasks[0].round == self._round:
            raise DeathError


class WorkerForEach:
    """Does each device's part of each round in a fresh worker, with a copy of the strategy and a read-only broadcast.

    This is what `backend.devices_per_actor=1` does in other processes, all of which die after every call.
    """

    def __init__(self) -> None:
        """Has no job yet."""
        self._job: Job | None = None

    def start(self) -> None:
        """Does nothing."""

    def open(self, job: Job) -> None:
        """Takes a copy of the strategy as it is before the first round."""
        self._job = replace(job, strategy=copy.deepcopy(job.strategy))

    def train(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[Trained]:
        """Trains blocks in order, device by device."""
        return (join([self._fresh().train(part, read_only(broadcast)) for part in task.each()]) for task in tasks)

    def evaluate(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[list[Row]]:
        """Evaluates blocks in order, device by device."""
        for task in tasks:
            parts = [self._fresh().evaluate(part, read_only(broadcast)) for part in task.each()]
            yield [row for rows in parts for row in rows]

    def close(self) -> None:
        """Forgets the job."""
        self._job = None

    def _fresh(self) -> Worker:
        assert self._job is not None
        return Worker(replace(self._job, strategy=copy.deepcopy(self._job.strategy)))


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Checks that two runs left the same, to the bit.

    Raises:
        AssertionError: They did not; the message names what differs.
    """
    assert one.keys() == other.keys(), f"only one of the runs has {sorted(one.keys() ^ other.keys())}"
    differ = [name for name in one if _plain(one[name]) != _plain(other[name])]
    assert not differ, f"the runs differ in {', '.join(differ)}"


def _plain(found: Any) -> Any:
    return (found.dtype.str, found.shape, found.tobytes()) if isinstance(found, np.ndarray) else found


def _outcome(directory: Path) -> dict[str, Any]:
    """Returns the arrays of the commits and of what devices keep, and the lines of the records, without times.

    Devices' arrays are named by the round and the device: in which files they are is for each backend to say.
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


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]
