"""The virtual clock of a run: when each round begins and ends, which devices take part, and what it costs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.text import counted
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.fleet.battery import Batteries
from odt_sim.fleet.conditions import Conditions
from odt_sim.fleet.draws import uniform
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.timeline import Outcome, TimelineRecord
from odt_sim.settings import Schedule
from odt_sim.simulation.clock.asynchronous import LONGEST_WAIT
from odt_sim.simulation.clock.devices import Devices, Planned
from odt_sim.simulation.clock.timetable import Course, Floats, Ids
from odt_sim.simulation.clock.work import WorkOf
from odt_sim.simulation.executors.job import Job, Trained
from odt_sim.simulation.run.messages import Messages
from odt_sim.strategies.base import Tensors, Updates

HOUR = 3600.0
State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Group:
    """Devices of a round that train from the same broadcast.

    Attributes:
        version: The round after which the broadcast was sent.
        ids: The devices, ascending.
        units: The epochs or steps of devices that do only part of the plan, by id.
        factors: The factors of updates that are scaled, by id.
    """

    version: int
    ids: tuple[int, ...]
    units: Mapping[int, int] = field(default_factory=dict)
    factors: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Appointment:
    """A round on the clock, decided before any of its devices trains.

    Attributes:
        groups: The devices whose updates the server accepts.
        line: The line of the timeline: what the selected devices do, and until when.
        columns: The columns of the round's record.
        state: The state of the clock after the round.
        earlier: The rounds whose broadcasts devices still train on after this round.
        durations: The seconds that the selected devices of a synchronous round need for all of their work.
    """

    groups: Sequence[Group]
    line: TimelineRecord
    columns: Mapping[str, Any]
    state: State
    earlier: frozenset[int] = frozenset()
    durations: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def selected(self) -> list[int]:
        """The ids of the devices in the round's line."""
        return list(self.line.devices)


class Clock(ABC):
    """Decides the rounds of a run, from the stored calibration, the seed and simulated time only.

    Attributes:
        job: The run's job.
        schedule: The run's `fleet.schedule`.
        devices: The devices that can take part.
    """

    def __init__(self, job: Job, conditions: Conditions, participants: Ids) -> None:
        """Find the devices that can take part.

        Args:
            job: The run's job.
            conditions: The devices' conditions.
            participants: The devices that take part in training, ascending.

        Raises:
            ConfigurationError: Fewer devices than a round needs have enough memory.
        """
        self.job, self._full = job, conditions.batteries
        self.schedule: Schedule = job.fleet.schedule
        self.devices = Devices(conditions, participants, job.data)
        self._participants = len(participants)
        self._work = WorkOf(job)
        self._decided: tuple[int, Appointment | None] | None = None
        name, needed = self._needed
        if needed > (fit := len(self.devices.candidates)):
            raise ConfigurationError(
                f"{name}: expected at most {fit}, since {self.devices.incapable} of {len(participants)} devices have "
                f"too little memory for this model, found {needed}; use fewer, a smaller model, or other fleet.profiles"
            )

    def begin(self, commit: Commit, without: Set[int]) -> Appointment | None:
        """Return the round after a commit; None if it would end after `fleet.schedule.hours`.

        Args:
            commit: The state before the round.
            without: Quarantined devices.

        Raises:
            SimulationError: No device is available for too long, or none can meet the deadline.
            ConfigurationError: The first round ends after `fleet.schedule.hours`.
        """
        if self._decided is None or self._decided[0] != commit.round:
            appointment, hours = self._decide(commit, without), self.schedule.hours
            if appointment and hours is not None and appointment.line.end > hours * HOUR:
                if not commit.round:
                    raise ConfigurationError(
                        f"fleet.schedule.hours: expected at least {appointment.line.end / HOUR:.3g}, when the first round "
                        f"ends, found {hours:g}"
                    )
                appointment = None
            self._decided = commit.round, appointment
        return self._decided[1]

    def after(self, before: Commit, appointment: Appointment, trained: Trained) -> State:
        """Return the state of the clock after a round, given the outcome of its training."""
        return appointment.state

    def mixed(
        self, appointment: Appointment, updates: Updates, now: Tensors, then: Callable[[int], Tensors]
    ) -> Updates:
        """Return the combined updates in the form that is applied to the server's model.

        Args:
            appointment: The round.
            updates: The round's updates as combined by the aggregator.
            now: The broadcast before the round.
            then: Returns the broadcast after an earlier round.
        """
        return updates

    @property
    @abstractmethod
    def _needed(self) -> tuple[str, int]:
        """The setting that determines how many devices a round needs at least, and this number."""

    @abstractmethod
    def _decide(self, commit: Commit, without: Set[int]) -> Appointment | None:
        """Return the round after a commit; None if the server waits for devices until the run ends."""

    def _limit(self, commit: Commit) -> float:
        """Return the simulated seconds after which no round begins; infinite for the first, because `begin` checks it."""
        hours = self.schedule.hours
        return np.inf if hours is None or not commit.round else hours * HOUR

    def batteries_of(self, commit: Commit) -> Batteries:
        """Return the batteries after a round."""
        return self._full.restored(commit.clock) if commit.clock else self._full

    def planned(self, ids: Ids, time: float, commit: Commit, batteries: Batteries) -> Planned:
        """Return the planned work of devices selected at a time, with the whole plan and the broadcast of a commit."""
        messages = Messages(self.job, commit.state)
        stateful = commit.versions.of(ids.tolist())
        round = commit.round + 1
        works = [self._work(device, round, messages, has_state=device in stateful) for device in ids.tolist()]
        waits = self.schedule.check_in * uniform(self.job.seed, "check-in", ids, commit.round)
        return self.devices.plan(ids, time, waits, works, batteries)

    def _no_devices(self, round: int, since: float, without: Collection[int], enough: int) -> SimulationError:
        """Return the error of a round for which fewer than `enough` devices are available, or not quarantined."""
        days, (name, needed) = LONGEST_WAIT / HOUR / 24, self._needed
        if (left := len(self.devices.candidates) - len(without)) < (enough or 1):
            return SimulationError(
                f"round {round}: {name} expects {counted(needed, 'device')}, but {left} of {left + len(without)} are not "
                "quarantined (fleet.quarantine_after); ask for fewer, or correct why they fail: "
                "excluded_reasons in rounds.jsonl"
            )
        fewer = f"a smaller {name}, found {needed}, " if needed > 1 else ""
        return SimulationError(
            f"round {round}: too few devices are available for {days:.0f} simulated days from hour {since / HOUR:.1f} on; "
            f"use {fewer}more devices, or another fleet.availability"
        )


@dataclass(frozen=True, eq=False)
class Spent:
    """The outcomes, times and costs of devices that are done; all arrays are `[devices]`."""

    ids: Ids
    outcomes: NDArray[np.int8]
    begins: Floats
    stops: Floats
    joules: Floats
    bytes_down: Floats
    bytes_up: Floats
    wifi: NDArray[np.bool_]

    def drained(self, batteries: Batteries) -> Batteries:
        """Return the batteries after this work."""
        return batteries.after(self.ids, self.begins, self.stops - self.begins, self.joules)

    def line(self, round: int, start: float, end: float, eligible: int | None) -> TimelineRecord:
        """Return the line of `timeline.jsonl`, with times and energies rounded to billionths, for small models."""
        return TimelineRecord(
            round=round,
            start=start,
            end=end,
            eligible=eligible,
            devices=self.ids.tolist(),
            outcomes=self.outcomes.tolist(),
            begins=np.round(self.begins, 9).tolist(),
            stops=np.round(self.stops, 9).tolist(),
            joules=np.round(self.joules, 9).tolist(),
            bytes_down=self.bytes_down.astype(np.int64).tolist(),
            bytes_up=self.bytes_up.astype(np.int64).tolist(),
            wifi=self.wifi.astype(np.int64).tolist(),
        )

    def columns(self, start: float, end: float, eligible: int | None, participants: int) -> dict[str, Any]:
        """Return the columns of the round's record."""
        counts = np.bincount(self.outcomes, minlength=len(Outcome)).tolist()
        sent = self.bytes_down + self.bytes_up
        return {
            "simulated_start": start,
            "simulated_end": end,
            "eligible": eligible,
            "ineligible": None if eligible is None else participants - eligible,
            "selected": len(self.ids),
            "reported": counts[Outcome.REPORTED] + counts[Outcome.PARTIAL],
            "partial": counts[Outcome.PARTIAL],
            "late": counts[Outcome.LATE],
            "left": counts[Outcome.LEFT],
            "joules": float(self.joules.sum()),
            "bytes_wifi": int(sent[self.wifi].sum()),
            "bytes_cellular": int(sent[~self.wifi].sum()),
        }


def spent(devices: Devices, planned: Planned, course: Course, start: float) -> Spent:
    """Return the outcomes, times and costs of the devices of a synchronous round."""
    cost, work = devices.spent(planned, course)
    stops = start + course.stops
    return Spent(
        planned.ids,
        course.outcomes,
        np.minimum(planned.begins, stops),
        stops,
        cost.joules,
        np.asarray(work.bytes_down, np.float64),
        np.asarray(work.bytes_up, np.float64),
        planned.wifi,
    )
