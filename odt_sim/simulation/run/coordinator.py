"""The simulation: a run of a strategy over a fleet, in which every round is committed completely or not at all."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from odt_sim._support.system import hand_back
from odt_sim._support.text import counted
from odt_sim._support.user_code import user_frames
from odt_sim.aggregators.base import Aggregator
from odt_sim.attacks.base import Attack
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import CheckpointError, ConfigurationError, OdtSimError, StrategyError
from odt_sim.fleet.conditions import conditions
from odt_sim.metrics.own import own_metrics
from odt_sim.metrics.rounds import check_target, reported_round
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.observers.base import Observer, Observers, RunInfo
from odt_sim.persistence.checkpoint import Checkpoint
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run_folder import INITIAL_MODEL, RunFolder, checksum
from odt_sim.persistence.storage import locked, storage_at
from odt_sim.persistence.summary import Summary
from odt_sim.settings import Budget, Fleet, Run
from odt_sim.simulation.clock.kinds import check_clock, clock_of
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.simulation.run.callbacks import Function, as_observers, text_of_callbacks
from odt_sim.simulation.run.checks import check_metrics, check_types, checked_job, promised
from odt_sim.simulation.run.code import record_code
from odt_sim.simulation.run.commits import Commits, Round
from odt_sim.simulation.run.deployed import checked_ids, deployed
from odt_sim.simulation.run.evaluation import Row
from odt_sim.simulation.run.finish import (
    evaluate_last_round,
    unchosen_round,
    undefined_metrics,
    write_model,
    write_results,
)
from odt_sim.simulation.run.round import EndedRound, Rounds
from odt_sim.simulation.run.run_settings import identity, settings
from odt_sim.simulation.run.run_warnings import run_warnings
from odt_sim.simulation.run.spending import Cadence, Spending
from odt_sim.simulation.run.start import check_unused, initial_weights, start, store_calibration
from odt_sim.strategies.base import ServerState, Strategy


class Simulation:
    """A strategy over a fleet of devices that train a model.

    Attributes:
        directory: The run's folder: records, models, and a checkpoint from which the run can be resumed.
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
        backend: Executor | None = None,
        aggregator: Aggregator | None = None,
        attack: Attack | None = None,
        budget: Budget | None = None,
        metrics: Sequence[Callable[..., float | None]] = (),
        metric: str | None = None,
        callbacks: Sequence[Function | Observer] = (),
    ) -> None:
        """Check the arguments; start nothing.

        Args:
            model: The model that all devices train.
            data: The devices' examples.
            strategy: The personalization algorithm.
            rounds: The number of rounds, at least 1.
            directory: The run's folder.
            fleet: The devices that take part; by default all devices in every round.
            plan: The local training; by default one epoch at the model's own learning rate.
            evaluate_every: The number of rounds between two evaluations; None for about ten evaluations. The last
                round is always evaluated.
            target: A value of the task's first metric, or of `metric`; the summary reports the number of rounds to
                reach it. None for none.
            seed: The random seed of cohorts, unseen devices and batch orders; at least 0.
            storage: The checkpoint's folder or URI, such as `s3://bucket/run-1`; by default in the run's folder.
            backend: Runs the devices; by default in this process. `ProcessesBackend()` of
                `odt_sim.simulation.executors.processes` uses all cores, `RayBackend(address="auto")` of
                `odt_sim.simulation.executors.ray` a Ray cluster.
            aggregator: Combines updates; by default their weighted mean.
            attack: The behaviour of hostile devices (`fleet.hostile`); by default nothing hostile.
            budget: The training steps or megabytes after which the run ends; by default no limit.
            metrics: Your own metrics: functions of a device's outputs and targets that return a number, see
                `OwnMetric`.
            metric: The metric that selects the reported round and that reports compare; by default the task's first.
            callbacks: Your own functions that receive each round's record once it is committed; a function that returns
                True, or a text with the reason, ends the run. The list may also contain observers.

        Raises:
            ConfigurationError: An argument has the wrong type, or a number is out of range.
            DataError: The data does not fit the model.
            StrategyError: The model lacks a capability that the strategy needs, or the strategy and the aggregator are
                incompatible.
            SimulationError: The aggregator's own `check` or `privacy` failed.
        """
        if not isinstance(directory, str | os.PathLike):
            raise ConfigurationError(
                f"Simulation: directory: expected the path of a folder, such as 'runs/fedavg', found {directory!r}"
            )
        self.directory = Path(directory)
        place = storage_at(storage or self.directory / "checkpoint")
        self._own_storage = storage is not None
        self._callbacks = as_observers(callbacks)
        self._callback_settings = {"callbacks": text_of_callbacks(callbacks)} if callbacks else {}
        self._executor = SerialBackend() if backend is None else backend
        check_types(backend=self._executor, budget=Budget() if budget is None else budget)
        job = checked_job(
            model,
            data,
            strategy,
            seed=seed,
            storage=place,
            fleet=fleet,
            plan=plan,
            aggregator=aggregator,
            attack=attack,
            runtime=self._executor.runtime,
        )
        self._job = replace(job, own_metrics=own_metrics(metrics), metric=metric, rounds=rounds)
        check_metrics(self._job)
        self._run_settings = Run(rounds, evaluate_every, target, metric, budget=budget or Budget())
        fleet, data = self._job.fleet, self._job.data
        self._spending = Spending(self._run_settings.budget)
        of_period = data.arrival.rounds if data.arrival else None
        self._cadence = Cadence(rounds, evaluate_every or of_period, fleet.schedule.hours)
        check_target(target, self._job.metrics[0], "run.target")
        self._privacy = promised(self._job, rounds)
        self._conditions = conditions(fleet, data.devices, seed, model, self.directory)
        check_clock(self._job, self._conditions, promises=self._privacy is not None)
        self._settings = settings(self._job, self._conditions)
        self._checkpoint = Checkpoint(place, model, identity(self._job, self._settings))
        self._folder = RunFolder(self.directory)
        clock = partial(clock_of, self._job, self._conditions) if self._conditions else None
        self._steps = Rounds(self._job, self._executor, rounds, clock, self._state)
        self._evaluated: Sequence[RoundRecord] = ()  # the records that decide which round is reported

    def __repr__(self) -> str:
        """Return strategy, devices, rounds, seed and folder in one line."""
        size = f"{counted(self.data.devices, 'device')}, {counted(self._rounds, 'round')}"
        return f"Simulation({self._job.strategy!r}, {size}, seed {self._job.seed}, {str(self.directory)!r})"

    @property
    def job(self) -> Job:
        """The constants of the run, which every worker receives."""
        return self._job

    @property
    def model(self) -> TrainableModel:
        """The model that all devices train, with its initial weights."""
        return self._job.model

    @property
    def data(self) -> FederatedData:
        """The devices' examples."""
        return self._job.data

    @property
    def own_examples(self) -> bool:
        """Whether devices have their own examples instead of those in `data`, as phones may."""
        return self._executor.own_examples

    def run(self, *, resume: bool = False, observers: Sequence[Observer] | None = None) -> Summary:
        """Run all rounds, evaluate the devices after the round that validates best, and return the summary.

        Args:
            resume: Whether to resume after the last committed round in the folder; otherwise the folder must contain no
                run.
            observers: Objects that follow the run and may stop it. None for a progress display in a terminal or a
                notebook, and for Python warnings about excluded devices elsewhere.

        Raises:
            CheckpointError: The folder contains a run and `resume` is not set, or it contains another run or a damaged
                one, or another process uses it or its storage.
            ConfigurationError: An observer failed when the run began.
            SimulationError: Workers died, the strategy or a callback failed, or too few devices contributed.
        """
        if not resume:
            check_unused(self._folder, self._checkpoint)
        group, summary = Observers([Observers(observers), *self._callbacks]), None
        # The run's folder has its own lock. Use one BLAS thread, as actors do: the bits of large products depend on the
        # number.
        storage_locked = self._job.storage.locked(group.on_warning) if self._own_storage else nullcontext()
        with locked(self.directory, group.on_warning), storage_locked, threadpool_limits(1, "blas"):
            commit, self._evaluated = start(
                self._job, self._folder, self._checkpoint, self._rounds, group.on_warning, self._initial
            )
            record_code(self._job, self.directory, commit.round, group.on_warning)
            self._spending = Spending(self._spending.budget).after(self._evaluated)
            store_calibration(self._conditions, self.directory)
            for message in run_warnings(self._job, own_examples=self.own_examples):
                group.on_warning(message)
            known = {**self._settings, "run.rounds": self._rounds, "seed": self._job.seed}
            info = RunInfo(self._job.strategy.name, known, self.directory, self._rounds, self._evaluated)
            try:
                stopped = group.on_begin(info) and commit.round > 0
                summary = self._run(commit, group, stopped)
            except (OdtSimError, KeyboardInterrupt) as error:
                # Otherwise a notebook shows a hundred lines of odt_sim; the cause's traceback ends in the user's code.
                raise error.with_traceback(user_frames(error.__traceback__)) from error.__cause__
            finally:
                group.on_end(summary)
            return summary

    def deployed(self, devices: Iterable[int]) -> Iterator[Device]:
        """Return devices of the complete run, one by one, with the weights of their users, as in `devices.jsonl`.

        `strategy.deploy` returns these weights after the round that validates best. Changes no file, and needs no
        backend. A device is released when the next one is requested; call its `parameters()` to keep the weights.

        Args:
            devices: The ids, which may include unseen devices.

        Raises:
            ConfigurationError: The fleet has no such device.
            CheckpointError: The run is not complete, or its checkpoint is missing, damaged or from another run.
            SimulationError: The strategy failed on a device.
        """
        chosen = checked_ids(devices, self.data.devices)
        return deployed(self._job, self._reported(), chosen)

    def for_new_devices(self) -> Weights:
        """Return the weights with which a device that joins after the complete run starts, before it trains.

        They are the server's weights, and the model file's for parts that do not travel, such as the head under FedPer.

        Raises:
            CheckpointError: The run is not complete, or its checkpoint is missing, damaged or of another run.
            StrategyError: The strategy sends no model weights.
        """
        shared = self._reported().state.broadcast.get("weights")
        if not isinstance(shared, Weights):
            raise StrategyError(
                f"strategy {self._job.strategy.name}: sends no weights for a new device to start from; start it from "
                f"{self.directory / INITIAL_MODEL}"
            )
        return initial_weights(self._job.model, self._job.runtime).replace(shared)

    def _reported(self) -> Commit:
        summary = self._folder.summary()
        if summary is None or summary.reported_round is None:
            raise CheckpointError(f"{self.directory}: the run is not complete; resume it, or run it again")
        return self._checkpoint.committed(summary.reported_round)

    def _initial(self) -> Commit:
        return self._steps.initial(initial_weights(self._job.model, self._job.runtime))

    def _state(self, round: int) -> ServerState:
        """Return the server's state after an earlier round, on which devices still train."""
        return self._checkpoint.state(round) if round else self._initial().state

    @property
    def _rounds(self) -> int:
        return self._run_settings.rounds

    def _run(self, commit: Commit, observers: Observers, stopped: bool) -> Summary:
        rows = self._kept(commit)
        if not rows:
            rows, stopped = self._work(commit, observers, stopped)
        reported = self._checkpoint.reported
        if warning := undefined_metrics(self._job, rows, self._evaluated):
            observers.on_warning(warning)
        if warning := unchosen_round(self._job, self._evaluated):
            observers.on_warning(warning)
        write_model(self._job, self._folder, reported, observers.on_warning)
        budget = {f"run.budget.{name}": str(limit) for name, limit in vars(self._run_settings.budget).items() if limit}
        limits = {"run.rounds": str(self._rounds), **budget, **self._callback_settings}
        ended_early = len(self._folder.rounds()) < self._rounds
        promise = promised(self._job, len(self._folder.rounds())) if self._privacy and ended_early else self._privacy
        return write_results(
            self._job,
            self._folder,
            rows,
            reported.round,
            settings={**self._settings, **observers.decides, **limits},
            target=self._run_settings.target,
            privacy=promise,
            conditions=self._conditions,
            stopped=(observers.reason if stopped else self._spending.reason) if ended_early else None,
            pruned=ended_early and observers.reason is not None if stopped and observers.prunes else None,
            backend=self._executor.choice,
        )

    def _kept(self, commit: Commit) -> list[Row]:
        """Return the recorded results of a complete run whose devices may be gone; empty if they must be evaluated."""
        ended = commit.round == self._rounds or self._spending.reason
        complete = ended and self._folder.summary() is not None
        if not (complete and self._executor.devices_leave):
            return []
        return [dict(record) for record in self._folder.devices()]

    def _work(self, commit: Commit, observers: Observers, stopped: bool) -> tuple[list[Row], bool]:
        """Run the remaining rounds and evaluate the devices; return the results and whether an observer stopped it."""
        try:
            self._executor.open(self._job)
            hand_back()
            started = time.perf_counter()
            with Commits(observers, self._write) as commits:
                while not (stopped or self._is_last(commit)):
                    ended = self._steps.run(commit)
                    rows = self._evaluation(commit, ended)
                    record = self._steps.evaluated(ended.record, rows, time.perf_counter() - started)
                    commit, started = ended.commit, started + record.seconds
                    if rows:
                        self._evaluated = [*self._evaluated, record]
                    best = reported_round(self._evaluated, self._job.metrics[0]) == commit.round
                    stopped = commits.add(Round(commit, record, ended.line, best), planned=self._rounds)
                stopped = commits.end() or stopped
            if stopped:
                self._evaluated = evaluate_last_round(self._steps, self._folder, commit)
                if reported_round(self._evaluated, self._job.metrics[0]) == commit.round:
                    self._checkpoint.report_last()
            return self._steps.evaluate("final", self._checkpoint.reported), stopped
        finally:
            self._executor.close()

    def _is_last(self, commit: Commit) -> bool:
        """Return whether no round follows a commit: after the last round, or if the budget is spent."""
        return bool(self._spending.reason) or self._steps.last(commit)

    def _evaluation(self, before: Commit, ended: EndedRound) -> list[Row]:
        """Evaluate the devices after a round if that is due; otherwise return no rows."""
        spent, self._spending = self._spending, self._spending.after([ended.record])
        shares = spent.share, self._spending.share
        if not (self._is_last(ended.commit) or self._cadence.due(before, ended.commit, shares)):
            return []
        rows = self._steps.evaluate("evaluate", ended.commit)
        hand_back()  # the allocator keeps freed memory, which looks like a leak
        return rows

    def _write(self, rounds: Sequence[Round]) -> None:
        """Write the records of rounds, then the commit of the last one."""
        last, records = rounds[-1], [each.record for each in rounds]
        if last.line:
            self._folder.append_timeline(last.line)
        self._folder.append_rounds(*records)
        commit = replace(last.commit, records=checksum(records, self._checkpoint.last.records))
        self._checkpoint.write(commit, best=last.best)
