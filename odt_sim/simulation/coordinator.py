"""Runs a strategy over a fleet, round by round; every round is committed whole or not at all."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from odt_sim.aggregators.base import Aggregator
from odt_sim.aggregators.mean import Mean
from odt_sim.data.federated import FederatedData
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.runtime import Runtime
from odt_sim.errors import CheckpointError, ConfigurationError, SimulationError
from odt_sim.memory import hand_back
from odt_sim.metrics.fleet import TASK_METRICS, evaluation_columns
from odt_sim.metrics.rounds import check_target, reported_round
from odt_sim.model.manifest import REGRESSIONS
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.verification import verify
from odt_sim.model.weights import Weights
from odt_sim.observers.base import Observer, Observers, RunInfo
from odt_sim.persistence.checkpoint import Checkpoint
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.files import remove_temporaries, write_file
from odt_sim.persistence.lock import locked
from odt_sim.persistence.records import DeviceRecord, RoundRecord
from odt_sim.persistence.run_folder import RECORDS, RunFolder, checksum
from odt_sim.persistence.storage import storage_at
from odt_sim.persistence.summary import Summary, summarize
from odt_sim.persistence.versions import Versions
from odt_sim.settings import Fleet, General, Run
from odt_sim.simulation.aggregation import aggregated
from odt_sim.simulation.backend import Backend
from odt_sim.simulation.cohort import (
    blocks,
    choose_cohort,
    choose_evaluated,
    choose_stragglers,
    choose_unseen,
    holds,
)
from odt_sim.simulation.evaluation import Row, not_evaluated
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.native_output import quiet
from odt_sim.simulation.privacy import promised
from odt_sim.simulation.quarantine import failures_after, quarantined
from odt_sim.simulation.round_in_flight import Begun
from odt_sim.simulation.run_checks import (
    check_aggregator,
    check_fit,
    check_parts,
    check_recorded,
    identity,
    settings,
)
from odt_sim.simulation.serial import SerialBackend
from odt_sim.simulation.sums import check_tensors, join
from odt_sim.strategies.base import ServerState, Strategy, Tensors, array_of, read_only

Kind = Literal["evaluate", "final"]

MODEL = "model.tflite"


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
        target: float | None = None,
        seed: int = 0,
        storage: str | os.PathLike[str] | None = None,
        backend: Backend | None = None,
        aggregator: Aggregator | None = None,
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
            evaluate_every: Rounds between two evaluations of the devices; None for about ten evaluations. The last
                round is always evaluated.
            target: A value of the task's first metric; the summary says how many rounds it took. None for none.
            seed: At least 0; decides cohorts, unseen devices and batch orders.
            storage: Where the checkpoint is, a path or a URI such as `s3://bucket/run-1`; below the run's folder by default.
            backend: Where devices run; in this process by default.
            aggregator: How updates become one; their weighted mean by default.

        Raises:
            ConfigurationError: A number is out of its range.
            DataError: The data does not fit the model.
            StrategyError: The strategy needs what the model lacks, or does not go with the aggregator.
            SimulationError: The aggregator's own `check` or `privacy` failed.
        """
        self.directory = Path(directory)
        self._fleet = fleet or Fleet()
        General(seed)
        Run(rounds, evaluate_every, target)
        self._rounds, self._seed, self._target = rounds, seed, target
        self._every = max(1, rounds // 10) if evaluate_every is None else evaluate_every
        self._fleet.check_size(data.devices)
        strategy.check(model)
        plan = plan or TrainingPlan()
        check_parts(self._fleet, plan)
        check_fit(model, data, plan)
        place = storage_at(storage or self.directory / "checkpoint")
        # The run's folder has a lock of its own.
        self._storage_locked = place.locked if storage else lambda _: nullcontext()
        self._job = Job(model, data, strategy, plan, seed, place, self._fleet, aggregator or Mean())
        check_aggregator(self._job)
        self._settings = settings(self._job)
        self._checkpoint = Checkpoint(place, model, identity(self._job, self._settings))
        check_target(target, TASK_METRICS[self._task][0], "run.target")
        self._backend = backend or SerialBackend()
        self._records = RunFolder(self.directory)
        self._evaluated: Sequence[RoundRecord] = ()  # the rounds' lines that say which one to report
        self._unseen = choose_unseen(data.devices, self._fleet.unseen, seed)
        seen = np.delete(np.arange(data.devices), self._unseen)
        self._participants = np.arange(data.devices) if strategy.alone else seen
        self._measured: list[int] = choose_evaluated(seen, self._unseen, self._fleet.evaluated, seed).tolist()
        self._privacy = promised(self._job, rounds)

    @property
    def data(self) -> FederatedData:
        """The devices' examples."""
        return self._job.data

    def run(self, *, resume: bool = False, observers: Sequence[Observer] = ()) -> Summary:
        """Run all rounds and evaluate the devices, or those of `fleet.evaluated`, after the round that validates best.

        Args:
            resume: Resume after the last committed round of the folder. Without it the folder must hold no run.
            observers: Follow the run, and may stop it. Without any, warnings are Python warnings.

        Returns:
            The content of `summary.json`.

        Raises:
            CheckpointError: The folder holds a run and `resume` is not set, or a different one, or one of which no round is
                whole, or another process runs in it or in its storage.
            ConfigurationError: An observer failed when the run began.
            SimulationError: Workers died, the strategy failed, or too few devices contributed.
        """
        if not resume:
            self._check_unused(self._checkpoint.look())
        group, summary = Observers(observers), None
        # One thread, as actors have: the bits of large products depend on their number.
        with (
            locked(self.directory, group.on_warning),
            self._storage_locked(group.on_warning),
            threadpool_limits(1, "blas"),
        ):
            commit, recorded = self._begin(group)
            try:
                stopped = group.on_begin(self._info(recorded)) and commit.round > 0
                summary = self._run(commit, group, stopped)
            finally:
                group.on_end(summary)
            return summary

    def _info(self, recorded: Sequence[RoundRecord]) -> RunInfo:
        settings = {**self._settings, "run.rounds": self._rounds, "seed": self._seed}
        return RunInfo(self._job.strategy.name, settings, self.directory, self._rounds, recorded)

    def _run(self, commit: Commit, observers: Observers, stopped: bool) -> Summary:
        try:
            self._backend.open(self._job)
            hand_back()
            started, begun = time.perf_counter(), None if stopped else self._begun(commit)
            while begun and not stopped:  # where an observer stops the run, the round that was begun ahead is discarded
                commit, record, begun = self._round(commit, begun, started)
                started += record.seconds
                stopped = observers.on_round(record)
            self._checkpoint.end()
            reported = self._checkpoint.reported
            rows = list(self._evaluate("final", reported))
        finally:
            self._backend.close()
            self._checkpoint.settle()
        return self._finish(rows, reported.round)

    def _check_unused(self, committed: int) -> None:
        if holds_results(self.directory):
            raise CheckpointError(
                f"{self.directory}: this folder holds a run already; resume it or choose another folder"
            )
        if committed:
            raise CheckpointError(
                f"{self._checkpoint.where}: a run is stored there already; resume it or choose another place (run.storage)"
            )

    def _begin(self, observers: Observers) -> tuple[Commit, Sequence[RoundRecord]]:
        committed = self._checkpoint.look()
        model = self._job.model
        verify(model.content, model.fingerprint, model.where)  # it may come of bytes that nobody has tried
        with quiet():
            initial = Runtime(model).initial
        recorded = self._records.rounds()
        check = partial(check_recorded, recorded, committed, self.directory, self._job.storage.where(""))
        # Refuse another run's checkpoint before anything is written.
        commit = self._checkpoint.read(observers.on_warning, check) or self._fresh(initial)
        check(commit)
        if commit.round > self._rounds:
            raise ConfigurationError(
                f"run.rounds: {self.directory} has {commit.round} rounds already, found {self._rounds}; ask for more"
            )
        self._evaluated = recorded[: commit.round]
        reported = [reported_round(recorded[:round], self._task) for round in (commit.round, max(0, commit.round - 1))]
        self._checkpoint.begin(commit, *reported)  # refuses before anything is touched
        self._records.truncate_rounds(commit.round)  # first: it fits the checkpoint with later commits and without
        self._checkpoint.clean()
        if commit.round < self._rounds:
            self._records.reopen()
        remove_temporaries(self.directory, (MODEL, *RECORDS))
        write_file(self.directory / MODEL, model.content)
        return commit, recorded[: commit.round]

    def _fresh(self, initial: Weights) -> Commit:
        with self._job.strategy_errors("in init"):
            own = Weights(initial.layout, initial.vector.copy())  # which the strategy may change
            state = _checked(self._job.strategy.init(own))
        return Commit(0, state, Versions(), {})

    def _begun(self, commit: Commit) -> Begun | None:
        """Has the backend begin the round after a commit, be that on the disk yet or not; None after the last round."""
        round = commit.round + 1
        if round > self._rounds:
            return None
        cohort, away = self._cohort(round), self._away(commit)
        slow = self._stragglers(cohort, round)
        counted = [id for id in cohort if id not in slow or self._job.strategy.partial_work]
        # Blocks are cut before: a sum has the same bits whether a device fails in it or is away.
        cut = [tuple(id for id in block if id not in away) for block in blocks(counted)]
        tasks = [
            Task("train", round, block, commit.versions.of(block), slow.intersection(block)) for block in cut if block
        ]
        parts = self._backend.train(tasks, commit.state.broadcast)
        invited = [id for id in cohort if id not in away]
        dropped = len(slow - away) if not self._job.strategy.partial_work else 0
        return Begun(invited, len(cohort) - len(invited), len(slow - away), dropped, parts)

    def _round(self, commit: Commit, begun: Begun, started: float) -> tuple[Commit, RoundRecord, Begun | None]:
        """Ends a round, and has the next begin before this one is evaluated and committed: workers then never wait.

        A later round's states of devices stand beside those that commits refer to, so that a run that dies in between goes
        on as if it had not begun.
        """
        round = commit.round + 1
        trained = join(begun.parts)
        after = self._after(commit, round, trained, begun)
        evaluated: Iterable[Row] = ()
        if round == self._rounds or round % self._every == 0:
            evaluated = self._evaluate("evaluate", after)
        following = self._begun(after)
        rows = list(evaluated)
        record = RoundRecord(
            round=round,
            strategy=self._job.strategy.name,
            devices=len(trained.contributed),
            excluded=len(trained.excluded),
            excluded_devices=list(trained.excluded),
            excluded_reasons=trained.excluded,
            quarantined=begun.quarantined,
            newly_quarantined=sorted(self._away(after) - self._away(commit)),
            stragglers=begun.slow,
            train_loss=trained.loss_sum / trained.loss_weight if trained.loss_weight else None,
            bytes_down=self._bytes_down(commit.state.broadcast, begun.invited),
            bytes_up=trained.bytes_up,
            train_calls=trained.train_calls,
            infer_calls=trained.infer_calls,
            seconds=time.perf_counter() - started,
            figures=evaluation_columns(rows, self._task),
            not_evaluated=not_evaluated(rows),
        )
        self._records.append_round(record)
        after = replace(after, records=checksum(record, commit.records))
        if rows:
            self._evaluated = [*self._evaluated, record]
            hand_back()  # an allocator that keeps what rounds have freed seems to leak
        self._checkpoint.write(after, best=reported_round(self._evaluated, self._task) == round)
        return after, record, following

    def _bytes_down(self, broadcast: Tensors, cohort: Sequence[int]) -> int:
        with self._job.strategy_errors("in message"):
            return sum(_size(self._job.strategy.message(broadcast, device)) for device in cohort)

    def _cohort(self, round: int) -> list[int]:
        size = None if self._job.strategy.alone else self._fleet.cohort
        return [int(id) for id in choose_cohort(self._participants, size, self._seed, round)]

    def _stragglers(self, cohort: Sequence[int], round: int) -> set[int]:
        """Returns the devices that are too slow for the round; who learns alone is in nobody's time."""
        fraction = 0.0 if self._job.strategy.alone else self._fleet.stragglers
        return choose_stragglers(cohort, fraction, self._seed, round) if fraction else set()

    def _away(self, commit: Commit) -> set[int]:
        return quarantined(commit.failures, self._fleet.quarantine_after)

    def _after(self, commit: Commit, round: int, trained: Trained, begun: Begun) -> Commit:
        if len(trained.contributed) < self._fleet.min_devices:
            raise SimulationError(
                f"round {round}: {len(trained.contributed)} devices contributed, fleet.min_devices is "
                f"{self._fleet.min_devices}; {begun.missing(trained)}"
            )
        versions = commit.versions.after(round, trained.stateful)
        failures = failures_after(commit.failures, trained.contributed, trained.excluded)
        if not trained.contributed:
            return Commit(round, commit.state, versions, failures)
        updates = aggregated(self._job, round, trained, begun)
        with self._job.strategy_errors(f"in aggregate in round {round}"):
            before = ServerState(read_only(commit.state.broadcast), read_only(commit.state.private))
            return Commit(round, _checked(self._job.strategy.aggregate(before, updates)), versions, failures)

    def _evaluate(self, kind: Kind, commit: Commit) -> Iterator[Row]:
        """Has the backend begin to evaluate devices after a round."""
        tasks = [Task(kind, commit.round, block, commit.versions.of(block)) for block in blocks(self._measured)]
        found = self._backend.evaluate(tasks, commit.state.broadcast)
        return ({"seen": not holds(self._unseen, row["device"]), **row} for rows in found for row in rows)

    def _finish(self, rows: Sequence[Row], reported: int) -> Summary:
        metrics = TASK_METRICS[self._task]
        known = {f"{prefix}{metric}": None for prefix in ("", "global_", "local_") for metric in metrics}
        for row in rows:
            alone = {f"local_{metric}": row.get(metric) for metric in metrics} if self._job.strategy.alone else {}
            row.update({**known, **row, **alone})
        self._records.write_devices(map(DeviceRecord.of, rows))
        summary = summarize(
            self._records.rounds(),
            rows,
            strategy=self._job.strategy.name,
            seed=self._seed,
            task=self._task,
            fleet=(self._job.data.devices, self._fleet.unseen),
            cohort=self._fleet.cohort,
            reported_round=reported,
            target=self._target,
            settings={**self._settings, "run.rounds": str(self._rounds)},
            privacy=self._privacy,
        )
        self._records.write_summary(summary)
        return summary

    @property
    def _task(self) -> str:
        return "regression" if self._job.model.loss in REGRESSIONS else "classification"


def holds_results(directory: Path) -> bool:
    """Whether a folder holds rounds of a run, or its summary; a failure alone is no result.

    Raises:
        CheckpointError: They are damaged.
    """
    records = RunFolder(directory)
    return bool(records.rounds()) or records.summary() is not None


def _checked(state: ServerState) -> ServerState:
    if not isinstance(state, ServerState):
        raise TypeError(f"returned {type(state).__name__}, expected a ServerState")
    check_tensors(state.broadcast, "the broadcast's")
    check_tensors(state.private, "the server's private")
    return state


def _size(tensors: Tensors) -> int:
    return sum(array_of(tensor).nbytes for tensor in tensors.values())
