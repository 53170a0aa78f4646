"""The rounds of a run: their cohorts, the work of their blocks, and the server's aggregation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.text import counted
from odt_sim.device.random import generator_for
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.metrics.fleet import evaluation_columns
from odt_sim.model.tensors import array_of, read_only
from odt_sim.model.weights import Weights, is_finite
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.timeline import TimelineRecord
from odt_sim.persistence.versions import Versions
from odt_sim.settings import ASYNCHRONOUS
from odt_sim.simulation.clock.clock import Appointment, Clock, Group
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job, Task, Trained
from odt_sim.simulation.run.checks import check_updates
from odt_sim.simulation.run.cohort import (
    blocks,
    choose_cohort,
    choose_evaluated,
    choose_stragglers,
    choose_unseen,
    holds,
)
from odt_sim.simulation.run.evaluation import Row, not_evaluated
from odt_sim.simulation.run.exclusion import advice, failures_after, listed, quarantined
from odt_sim.simulation.run.messages import Assignment, Messages, differ
from odt_sim.simulation.run.sums import add, check_combined, check_tensors, mean
from odt_sim.strategies.base import ServerState, Strategy, Unkept, Updates


@dataclass(frozen=True)
class PlannedRound:
    """A round before its devices train.

    Attributes:
        round: Its number.
        invited: The ids of the devices of its cohort that are not quarantined.
        quarantined: The number of quarantined devices of its cohort.
        stragglers: The number of invited devices that are too slow to do all of their work.
        dropped: The number of stragglers that are left out of the round.
        assignments: Its blocks, and what their devices receive.
        messages: What the server sends in this round.
        appointment: The round on the clock; None without a clock.
    """

    round: int
    invited: list[int]
    quarantined: int
    stragglers: int
    dropped: int
    assignments: Sequence[Assignment]
    messages: Messages
    appointment: Appointment | None = None

    def missing(self, trained: Trained) -> str:
        """Return text on the devices of the cohort that did not contribute: how many, the reasons, and advice."""
        excluded = trained.excluded
        counts = {
            f"left out {len(excluded)} ({listed(excluded)})": len(excluded),
            f"{self.dropped} were stragglers (fleet.stragglers)": self.dropped,
            f"{self.quarantined} are quarantined (fleet.quarantine_after)": self.quarantined,
        }
        missing = ", ".join(text for text, count in counts.items() if count)
        if damaged := [name for name, each in self.messages.broadcast.items() if not is_finite(array_of(each))]:
            sent = f"the server sent values that are not finite ({', '.join(damaged)})"
            return f"{missing}; {sent}; correct init or aggregate of the strategy"
        return f"{missing}; {advice(excluded) or 'ask for fewer, or correct why they fail'}"


@dataclass(frozen=True)
class EndedRound:
    """The outcome of a round.

    Attributes:
        commit: The state after it.
        record: Its record, without its duration and its evaluation.
        line: Its line in the timeline; None without a clock.
    """

    commit: Commit
    record: RoundRecord
    line: TimelineRecord | None


class Rounds:
    """Runs the rounds of a run, and evaluates its devices."""

    def __init__(
        self,
        job: Job,
        executor: Executor,
        rounds: int,
        clock: Callable[[NDArray[np.int64]], Clock] | None = None,
        earlier: Callable[[int], ServerState] | None = None,
    ) -> None:
        """Draw the devices that never train and those that are evaluated.

        Args:
            job: The run's job.
            executor: Runs the devices.
            rounds: The maximum number of rounds.
            clock: Returns the clock, given the devices that take part in training; None for a run without a clock.
            earlier: Returns the server's state after a round that an earlier process ran.
        """
        self._job, self._executor, self._rounds = job, executor, rounds
        fleet, devices = job.fleet, job.data.devices
        self._unseen = choose_unseen(devices, fleet.unseen, job.seed)
        seen = np.delete(np.arange(devices), self._unseen)
        self._participants = np.arange(devices) if job.strategy.alone else seen
        self._clock = clock(self._participants) if clock else None
        self._earlier, self._states = earlier, dict[int, ServerState]()
        self._evaluated: list[int] = choose_evaluated(seen, self._unseen, fleet.evaluated, job.seed).tolist()

    def initial(self, weights: Weights) -> Commit:
        """Return the state before the first round, given a copy of the model's weights."""
        with self._job.strategy_errors("in init"):
            return Commit(0, _checked(self._job.strategy.init(weights)), Versions(), {})

    def run(self, commit: Commit) -> EndedRound:
        """Run the round after a commit: choose a cohort, send it the server's state, train it, combine its updates.

        Raises:
            SimulationError: A block failed, too few devices contributed, or the strategy or the aggregator failed.
        """
        planned = self._planned(commit)
        trained = Trained()
        for assignment in planned.assignments:
            self._executor.run(assignment, partial(add, trained))
        after = self._after(commit, planned, trained)
        line = planned.appointment.line if planned.appointment else None
        return EndedRound(after, self._record(commit, after, planned, trained), line)

    def _planned(self, commit: Commit) -> PlannedRound:
        """Return the round after a commit."""
        round = commit.round + 1
        if appointment := self._appointment(commit):
            return self._planned_on_clock(commit, appointment)
        partial, quarantine = self._job.strategy.partial_work, self._quarantined(commit)
        cohort = self._cohort(commit)
        # Strategies that train devices alone have no stragglers.
        fraction = 0.0 if self._job.strategy.alone else self._job.fleet.stragglers
        slow = choose_stragglers(cohort, fraction, self._job.seed, round) if fraction else set()
        # Cut the blocks before quarantine, so that a sum has the same bits whether a device fails or is quarantined.
        cut = blocks([id for id in cohort if partial or id not in slow])
        active = [tuple(id for id in block if id not in quarantine) for block in cut]
        tasks = [
            Task("train", round, block, commit.versions.of(block), slow.intersection(block))
            for block in active
            if block
        ]
        messages = Messages(self._job, commit.state)
        invited = [id for id in cohort if id not in quarantine]
        stragglers = len(slow - quarantine)
        dropped = 0 if partial else stragglers
        absent = len(cohort) - len(invited)
        return PlannedRound(round, invited, absent, stragglers, dropped, [Assignment(tasks, messages)], messages)

    def last(self, commit: Commit) -> bool:
        """Return whether no round follows a commit."""
        return commit.round == self._rounds or (self._clock is not None and self._appointment(commit) is None)

    def _appointment(self, commit: Commit) -> Appointment | None:
        return self._clock.begin(commit, self._quarantined(commit)) if self._clock else None

    def _planned_on_clock(self, commit: Commit, appointment: Appointment) -> PlannedRound:
        """Return a round on the clock: only devices whose updates the server accepts are trained."""
        kept = {*commit.earlier, *appointment.earlier, *(group.version for group in appointment.groups)}
        self._states = {version: self._state(version) for version in kept if version < commit.round}
        self._states[commit.round] = self._sent(commit.state)
        assignments = [
            Assignment(self._tasks(group, commit), Messages(self._job, self._states[group.version]))
            for group in appointment.groups
        ]
        invited = [id for group in appointment.groups for id in group.ids]
        messages = Messages(self._job, commit.state)
        return PlannedRound(commit.round + 1, invited, 0, 0, 0, assignments, messages, appointment)

    def _state(self, version: int) -> ServerState:
        """Return what the server sent after an earlier round; a resumed run reads it from the checkpoint."""
        if version not in self._states:
            assert self._earlier is not None
            self._states[version] = self._sent(self._earlier(version))
        return self._states[version]

    def _sent(self, state: ServerState) -> ServerState:
        """Return the part of a state that messages depend on."""
        return state if differ(self._job.strategy) else ServerState(state.broadcast)

    def _tasks(self, group: Group, commit: Commit) -> list[Task]:
        """Return the blocks of a group; a device's randomness is seeded by the round in which it began."""
        utility = self._job.fleet.schedule.kind == "oort"
        return [
            Task(
                "train",
                group.version + 1,
                block,
                commit.versions.of(block),
                units=group.units,
                factors=group.factors,
                saves=commit.round + 1,
                utility=utility,
            )
            for block in blocks(group.ids)
        ]

    def _after(self, commit: Commit, planned: PlannedRound, trained: Trained) -> Commit:
        """Return the state after a round, given the state before it and the sum of its blocks."""
        job, round = self._job, planned.round
        # A round on the clock may have no reports; an asynchronous server continues without an excluded report.
        lacks = planned.appointment and (not planned.appointment.groups or job.fleet.schedule.kind in ASYNCHRONOUS)
        if len(trained.contributed) < job.fleet.min_devices and not lacks:
            raise SimulationError(
                f"round {round}: {counted(len(trained.contributed), 'device')} contributed, fleet.min_devices is "
                f"{job.fleet.min_devices}; {planned.missing(trained)}"
            )
        versions = commit.versions.after(round, trained.stateful)
        failures = failures_after(commit.failures, trained.contributed, trained.excluded)
        state = self._aggregated(commit.state, planned, trained) if trained.contributed else commit.state
        if not (self._clock and planned.appointment):
            return Commit(round, state, versions, failures)
        clock = self._clock.after(commit, planned.appointment, trained)
        return Commit(round, state, versions, failures, clock=clock, earlier=planned.appointment.earlier)

    def _aggregated(self, state: ServerState, planned: PlannedRound, trained: Trained) -> ServerState:
        """Return the server's state after a round with at least one contribution."""
        updates = self._combined(planned, trained)
        if planned.appointment and self._clock:
            updates = self._clock.mixed(
                planned.appointment, updates, state.broadcast, lambda version: self._state(version).broadcast
            )
        with self._job.strategy_errors(f"in aggregate in round {planned.round}"):
            before = ServerState(read_only(state.broadcast), read_only(state.private))
            return _checked(self._job.strategy.aggregate(before, updates))

    def evaluate(self, kind: Literal["evaluate", "final"], commit: Commit) -> list[Row]:
        """Evaluate devices after a round; return their rows, in the order of the blocks."""
        tasks = [Task(kind, commit.round, block, commit.versions.of(block)) for block in blocks(self._evaluated)]
        blocks_rows: list[list[Row]] = []
        self._executor.run(Assignment(tasks, Messages(self._job, commit.state)), blocks_rows.append)
        return [{"seen": not holds(self._unseen, row["device"]), **row} for rows in blocks_rows for row in rows]

    def _record(self, before: Commit, after: Commit, planned: PlannedRound, trained: Trained) -> RoundRecord:
        """Return the record of a round, without its duration and its evaluation."""
        on_clock = planned.appointment
        columns = on_clock.columns if on_clock else {}
        down = sum(on_clock.line.bytes_down) if on_clock else planned.messages.bytes(planned.invited)
        return RoundRecord(
            round=planned.round,
            strategy=self._job.strategy.name,
            devices=len(trained.contributed),
            excluded=len(trained.excluded),
            excluded_devices=list(trained.excluded),
            excluded_reasons=trained.excluded,
            quarantined=planned.quarantined,
            newly_quarantined=sorted(self._quarantined(after) - self._quarantined(before)),
            stragglers=planned.stragglers,
            train_loss=trained.loss_sum / trained.loss_weight if trained.loss_weight else None,
            bytes_down=down,
            bytes_up=sum(on_clock.line.bytes_up) if on_clock else trained.bytes_up,
            train_calls=trained.train_calls,
            infer_calls=trained.infer_calls,
            seconds=0.0,
            **columns,
        )

    def evaluated(self, record: RoundRecord, rows: Sequence[Row], seconds: float) -> RoundRecord:
        """Return the record of a round with its duration and its evaluation; `rows` is empty if no evaluation was due."""
        if not rows:
            return replace(record, seconds=seconds)
        columns, missing = evaluation_columns(rows, self._job.metrics), not_evaluated(rows)
        return replace(record.with_evaluation(columns, missing), seconds=seconds)

    def _cohort(self, commit: Commit) -> list[int]:
        """Return the devices of the round after a commit, chosen by the strategy or drawn."""
        round, strategy = commit.round + 1, self._job.strategy
        if type(strategy).cohort is not Strategy.cohort:  # it chooses by what it has learned
            available = [id for id in self._participants.tolist() if id not in self._quarantined(commit)]
            with self._job.strategy_errors(f"in cohort in round {round}"):
                before = ServerState(read_only(commit.state.broadcast), read_only(commit.state.private))
                chosen = strategy.cohort(before, round, available)
                if chosen is not None:
                    return _among(chosen, available)
        size = None if strategy.alone else self._job.fleet.cohort
        drawn: list[int] = choose_cohort(self._participants, size, self._job.seed, round).tolist()
        return drawn

    def _quarantined(self, commit: Commit) -> set[int]:
        return quarantined(commit.failures, self._job.fleet.quarantine_after)

    def _combined(self, planned: PlannedRound, trained: Trained) -> Updates:
        """Return a round's updates as the aggregator combines them; `each` is refused unless the strategy keeps updates."""
        job, round = self._job, planned.round
        try:
            check_updates(job, len(trained.contributed))
        except ConfigurationError as error:
            raise SimulationError(f"round {round}: {error}; {planned.missing(trained)}") from error
        aggregator = job.effective_aggregator
        if aggregator.same_tensors and trained.uneven:
            raise SimulationError(
                f"strategy {job.strategy.name}: in round {round} only some devices sent {', '.join(sorted(trained.uneven))}, "
                f"which aggregator {aggregator.name} cannot conceal; send the same tensors from all devices, with "
                "zeros where a device has none"
            )
        with job.aggregator_errors(f"in round {round}"):
            given = mean(trained, job.participants)
            updates = aggregator.combine(given, job.cohort, generator_for(job.seed, round, "aggregator"))
            check_combined(updates, given, keeps_updates=aggregator.keeps_updates)
        return updates if job.strategy.keeps_updates else replace(updates, each=Unkept())


def _among(chosen: Sequence[int], available: Sequence[int]) -> list[int]:
    if not isinstance(chosen, Iterable):
        raise TypeError(f"it returned {type(chosen).__name__}, expected the ids of devices")
    ids = sorted(map(int, chosen))
    wrong = sorted({*ids} - {*available}) or [id for id in ids if ids.count(id) > 1]
    if wrong or not ids:
        found = f"device {wrong[0]}" if wrong else "no device"
        raise ValueError(f"it chose {found}, expected distinct devices among the {len(available)} available ones")
    return ids


def _checked(state: ServerState) -> ServerState:
    if not isinstance(state, ServerState):
        raise TypeError(f"returned {type(state).__name__}, expected a ServerState")
    check_tensors(state.broadcast, "the broadcast's")
    check_tensors(state.private, "the server's private")
    return ServerState(read_only(state.broadcast), read_only(state.private))
