"""Runs a strategy over a fleet, round by round; every round is committed whole or not at all."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.check import check_against
from odt_sim.data.federated import FederatedData
from odt_sim.device.checkpoint import write_atomically
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.runtime import Runtime
from odt_sim.errors import CheckpointError, ConfigurationError, DataError, SimulationError
from odt_sim.metrics.fleet import TASK_METRICS, evaluation_columns
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.report.records import RunFolder, is_run_folder
from odt_sim.report.summary import summarize
from odt_sim.simulation.backend import Backend
from odt_sim.simulation.block import Job, Row, Task, Trained, join, mean
from odt_sim.simulation.cohort import blocks, choose_cohort, choose_unseen
from odt_sim.simulation.serial import SerialBackend
from odt_sim.simulation.store import DeviceStore, read_state, write_state
from odt_sim.strategies.base import ServerState, Strategy, Tensors, array_of

Kind = Literal["evaluate", "final"]


@dataclass(frozen=True)
class Fleet:
    """Who takes part.

    Attributes:
        cohort: Devices of a round, 1 to those that are seen; None for all of them.
        unseen: Devices kept out of training, fewer than there are.
        min_devices: A round to which fewer devices contribute ends the run; at least 0.
    """

    cohort: int | None = None
    unseen: int = 0
    min_devices: int = 1


@dataclass(frozen=True)
class Commit:
    """What holds after a round.

    Attributes:
        round: The round; 0 before the first.
        state: The server's state.
        versions: `[devices]` int64, the round in which each device last wrote a state; 0 for never.
    """

    round: int
    state: ServerState
    versions: NDArray[np.int64]


class Simulation:
    """A strategy over a fleet of devices that train a model.

    Attributes:
        directory: The run's folder: records, the model, and a checkpoint from which the run can go on.
    """

    def __init__(
        self,
        model: TrainableModel,
        data: FederatedData,
        strategy: Strategy,
        *,
        rounds: int,
        directory: str | os.PathLike[str],
        fleet: Fleet | None = None,
        plan: TrainingPlan | None = None,
        evaluate_every: int | None = None,
        seed: int = 0,
        storage: str | os.PathLike[str] | None = None,
        backend: Backend | None = None,
    ) -> None:
        """Checks that everything fits; starts nothing.

        Args:
            model: The model that all devices train.
            data: The devices' examples.
            strategy: The personalization algorithm.
            rounds: How many rounds, at least 1.
            directory: The run's folder.
            fleet: Who takes part; all devices in every round by default.
            plan: How devices train; one epoch at the model's own learning rate by default.
            evaluate_every: Rounds between two evaluations of all devices; None for about ten evaluations. The last
                round is always evaluated.
            seed: At least 0; decides cohorts, unseen devices and batch orders.
            storage: Where the checkpoint is; below the run's folder by default.
            backend: Where devices run; in this process by default.

        Raises:
            ConfigurationError: A number is out of its range.
            DataError: The data does not fit the model.
            StrategyError: The strategy needs what the model lacks.
        """
        self.directory = Path(directory)
        self._fleet = fleet or Fleet()
        self._rounds, self._seed = rounds, seed
        self._every = evaluate_every or max(1, rounds // 10)
        self._check_numbers(data)
        strategy.check(model)
        check_fit(model, data)
        self._checkpoint = Path(storage) if storage else self.directory / "checkpoint"
        folder = (self._checkpoint / "devices").absolute()
        self._job = Job(model, data, strategy, plan or TrainingPlan(), seed, folder)
        self._store = DeviceStore(folder, model)
        self._backend = backend or SerialBackend()
        self._records = RunFolder(self.directory)
        unseen = choose_unseen(data.devices, self._fleet.unseen, seed)
        self._seen = np.setdiff1d(np.arange(data.devices), unseen)

    def _check_numbers(self, data: FederatedData) -> None:
        seen = data.devices - self._fleet.unseen
        ranges: Mapping[str, tuple[int, float, float]] = {
            "run.rounds": (self._rounds, 1, float("inf")),
            "run.evaluate_every": (self._every, 1, float("inf")),
            "seed": (self._seed, 0, float("inf")),
            "fleet.unseen": (self._fleet.unseen, 0, data.devices - 1),
            "fleet.cohort": (seen if self._fleet.cohort is None else self._fleet.cohort, 1, seen),
            "fleet.min_devices": (self._fleet.min_devices, 0, seen),
        }
        for name, (value, low, high) in ranges.items():
            if not low <= value <= high:
                expected = f"at least {low}" if high == float("inf") else f"{low} to {high}"
                raise ConfigurationError(
                    f"{name}: expected {expected}, found {value} (the data has {data.devices} devices)"
                )

    # --- the run ---------------------------------------------------------------------------------------------------

    def run(self, *, resume: bool = False, on_round: Callable[[Row], None] | None = None) -> dict[str, Any]:
        """Runs all rounds and evaluates every device.

        Args:
            resume: Go on from the last committed round of the folder. Without it the folder must hold no run.
            on_round: Called with each round's record once the round is committed.

        Returns:
            What stands in `summary.json`.

        Raises:
            CheckpointError: The folder holds a run and `resume` is not set, or holds a damaged or a different one.
            SimulationError: Workers died, the strategy failed, or too few devices contributed.
        """
        commit = self._begin(resume)
        self._backend.open(self._job)
        try:
            rows: list[Row] = []
            for round in range(commit.round + 1, self._rounds + 1):
                commit, rows, record = self._round(commit, round)
                if on_round:
                    on_round(record)
            rows = rows or self._evaluate("final", commit)  # a resumed run may have no round left
        finally:
            self._backend.close()
        return self._finish(rows)

    def _begin(self, resume: bool) -> Commit:
        initial = Runtime(self._job.model).initial
        fresh = Commit(0, self._job.strategy.init(initial), np.zeros(self._job.data.devices, np.int64))
        if not resume and is_run_folder(self.directory):
            raise CheckpointError(f"{self.directory}: holds a run already; resume it or choose another folder")
        write_atomically(self.directory / "model.tflite", self._job.model.content)
        commit = self._read_commit() if resume and self._server_file.exists() else fresh
        self._records.truncate_rounds(commit.round)
        return commit

    def _round(self, commit: Commit, round: int) -> tuple[Commit, list[Row], Row]:
        started = time.perf_counter()
        cohort = choose_cohort(self._seen, self._fleet.cohort, self._seed, round).tolist()
        tasks = [Task("train", round, block, tuple(commit.versions[list(block)].tolist())) for block in blocks(cohort)]
        trained = join(self._backend.train(tasks, commit.state.broadcast))
        after = self._after(commit, round, trained)
        rows: list[Row] = []
        if round == self._rounds or round % self._every == 0:
            rows = self._evaluate("final" if round == self._rounds else "evaluate", after)
        record: Row = {
            "round": round,
            "strategy": self._job.strategy.name,
            "devices": len(trained.contributed),
            "excluded": len(trained.excluded),
            "excluded_devices": trained.excluded,
            "train_loss": trained.loss_sum / trained.loss_weight if trained.loss_weight else None,
            "bytes_down": len(cohort) * _size(commit.state.broadcast),
            "bytes_up": trained.bytes_up,
            "seconds": time.perf_counter() - started,
            **evaluation_columns(rows, self._task),
        }
        self._records.append_round(record)
        self._write_commit(after)
        self._drop_old(commit, trained)
        return after, rows, record

    def _after(self, commit: Commit, round: int, trained: Trained) -> Commit:
        if len(trained.contributed) < self._fleet.min_devices:
            raise SimulationError(
                f"round {round}: {len(trained.contributed)} devices contributed, fleet.min_devices is "
                f"{self._fleet.min_devices}; losses or weights of {len(trained.excluded)} were not finite "
                "(a smaller train.learning_rate may help)"
            )
        versions = commit.versions.copy()
        versions[list(trained.stateful)] = round
        state = self._job.strategy.aggregate(commit.state, mean(trained)) if trained.contributed else commit.state
        return Commit(round, state, versions)

    def _evaluate(self, kind: Kind, commit: Commit) -> list[Row]:
        devices = range(self._job.data.devices)
        tasks = [
            Task(kind, commit.round, block, tuple(commit.versions[list(block)].tolist())) for block in blocks(devices)
        ]
        seen = set(self._seen.tolist())
        found = self._backend.evaluate(tasks, commit.state.broadcast)
        return [{"seen": row["device"] in seen, **row} for rows in found for row in rows]

    def _finish(self, rows: Sequence[Row]) -> dict[str, Any]:
        metrics = TASK_METRICS[self._task]
        name = self._job.strategy.name
        known = {f"{prefix}_{metric}": None for prefix in ("global", "local") for metric in metrics}
        for row in rows:
            alone = {f"local_{metric}": row[metric] for metric in metrics} if name == "local" else {}
            row.update({**known, **row, **alone})
        self._records.write_devices(rows)
        cohort = self._fleet.cohort
        rounds = self._records.rounds()
        summary = summarize(rounds, rows, strategy=name, seed=self._seed, task=self._task, cohort=cohort)
        self._records.write_summary(summary)
        return summary

    @property
    def _task(self) -> str:
        return "regression" if self._job.model.loss == "mean_squared_error" else "classification"

    # --- commits ---------------------------------------------------------------------------------------------------

    @property
    def _server_file(self) -> Path:
        return self._checkpoint / "server.safetensors"

    def _write_commit(self, commit: Commit) -> None:
        state: dict[str, Weights | NDArray[Any]] = {"versions": commit.versions}
        state |= {f"broadcast.{name}": tensor for name, tensor in commit.state.broadcast.items()}
        state |= {f"private.{name}": tensor for name, tensor in commit.state.private.items()}
        identity = {"round": str(commit.round), **self._identity}
        write_state(self._server_file, state, self._job.model, **identity)

    def _read_commit(self) -> Commit:
        state, texts = read_state(self._server_file, self._job.model)
        for name, expected in self._identity.items():
            if texts.get(name) != expected:
                raise CheckpointError(
                    f"{self._server_file}: of a run with {name} {texts.get(name)}, this one has {expected}; "
                    "resume with the same configuration"
                )
        broadcast, private = (
            {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
            for prefix in ("broadcast.", "private.")
        )
        return Commit(int(texts["round"]), ServerState(broadcast, private), array_of(state["versions"]))

    @property
    def _identity(self) -> dict[str, str]:
        devices = str(self._job.data.devices)
        return {"strategy": self._job.strategy.name, "seed": str(self._seed), "devices": devices}

    def _drop_old(self, before: Commit, trained: Trained) -> None:
        for device in trained.stateful:
            if before.versions[device]:
                self._store.drop(device, int(before.versions[device]))


def check_fit(model: TrainableModel, data: FederatedData) -> None:
    """Checks once, before a run, that devices can train and evaluate on their data.

    Raises:
        DataError: A shape, a dtype or a label does not fit, or a device has no training or no test example.
    """
    x, y = model.x, model.y
    check_against(data, x.shape[1:], x.dtype, y.shape[1:], y.dtype, model.classes)
    for column, split in ((0, "training"), (2, "test")):
        empty = np.flatnonzero(data.offsets[:, column + 1] == data.offsets[:, column])
        if len(empty):
            raise DataError(
                f"data {data.name}: device {empty[0]} has no {split} example; use fewer devices or another partition"
            )


def _size(tensors: Tensors) -> int:
    return sum(array_of(tensor).nbytes for tensor in tensors.values())
