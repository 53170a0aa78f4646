"""Synchronous rounds on the clock: a cohort of the available devices, chosen uniformly or by utility.

If devices train alone, there is no cohort, no deadline and no server that needs reports: all available devices take
part.
"""

import math
from collections.abc import Callable, Set
from dataclasses import replace

import numpy as np

from odt_sim.device.random import generator_for
from odt_sim.errors import SimulationError
from odt_sim.fleet.battery import Batteries
from odt_sim.fleet.conditions import Conditions
from odt_sim.fleet.draws import choose_eligible
from odt_sim.persistence.commit import Commit
from odt_sim.simulation.clock import oort
from odt_sim.simulation.clock.asynchronous import LONGEST_WAIT, WAIT
from odt_sim.simulation.clock.clock import Appointment, Clock, Group, State, spent
from odt_sim.simulation.clock.synchronous import synchronous_course
from odt_sim.simulation.clock.timetable import Course, Ids
from odt_sim.simulation.executors.job import Job, Trained


class SynchronousClock(Clock):
    """A server that waits for the reports of each round; see `odt_sim.simulation.clock.synchronous`."""

    def __init__(self, job: Job, conditions: Conditions, participants: Ids) -> None:
        """Find the devices that can take part; see `Clock`."""
        super().__init__(job, conditions, participants)
        if job.strategy.alone:
            self.schedule = replace(self.schedule, deadline=None, min_reports=1)

    def _decide(self, commit: Commit, without: Set[int]) -> Appointment | None:
        round, schedule, plan = commit.round + 1, self.schedule, self.job.plan
        batteries = self.batteries_of(commit)
        start, ids = self._wait(commit, np.array(sorted(without), np.int64), batteries)
        if start >= self._limit(commit):
            return None
        planned = self.planned(ids, start, commit, batteries)
        course = synchronous_course(
            planned.trips,
            self._cohort or len(ids),
            deadline=schedule.deadline,
            units=plan.amount,
            partial=self.job.strategy.partial_work and plan.amount > 1,
        )
        deadline, fastest = schedule.deadline, float(planned.cost.seconds.min())
        if deadline is not None and fastest > deadline and not course.used.any():
            raise SimulationError(
                f"round {round}: no device can report within fleet.schedule.deadline, {deadline:g} s; the fastest of "
                f"{len(ids)} needs {fastest:.3g} s; increase the deadline, or train less (train.epochs, train.steps)"
            )
        done, end = spent(self.devices, planned, course, start), start + course.end
        eligible = self.devices.count(start, batteries)
        return Appointment(
            groups=_groups(commit.round, ids, course, plan.amount) if course.used.sum() >= schedule.min_reports else (),
            line=done.line(round, start, end, eligible),
            columns=done.columns(start, end, eligible, self._participants),
            state={"time": np.array([end]), **done.drained(batteries).pruned(end).state()},
            durations=planned.cost.seconds,
        )

    @property
    def _needed(self) -> tuple[str, int]:
        return "fleet.cohort", self._cohort or 1

    @property
    def _cohort(self) -> int | None:
        return None if self.job.strategy.alone else self.job.fleet.cohort

    def _wait(self, commit: Commit, without: Ids, batteries: Batteries) -> tuple[float, Ids]:
        """Return when enough devices are available, and the selected devices, ascending.

        If the run ends before that, the devices are empty. Once fewer devices than a cohort are not quarantined, all of
        them are enough.
        """
        cohort, candidates = self._cohort, self.devices.candidates
        count = math.ceil(cohort * self.schedule.overselection) if cohort else len(candidates)
        needed = min(cohort or 1, len(candidates) - len(without))
        time = since = float(commit.clock["time"][0]) if commit.clock else 0.0
        while needed and time - since <= LONGEST_WAIT:
            if time >= self._limit(commit):
                return time, candidates[:0]

            def eligible(ids: Ids, time: float = time) -> Ids:
                return self.devices.eligible(ids[~np.isin(ids, without)], time, batteries)

            ids = self._select(eligible, count, commit)
            if len(ids) >= needed:
                return time, ids
            time += WAIT
        raise self._no_devices(commit.round + 1, since, without, needed)

    def _select(self, eligible: Callable[[Ids], Ids], count: int, commit: Commit) -> Ids:
        """Return the selected devices, ascending; fewer than `count` if fewer are eligible."""
        random = generator_for(self.job.seed, commit.round + 1, "cohort")
        return choose_eligible(self.devices.candidates, count, eligible, random)


class OortClock(SynchronousClock):
    """A synchronous server that selects devices by utility; see `odt_sim.simulation.clock.oort`."""

    def after(self, before: Commit, appointment: Appointment, trained: Trained) -> State:
        """Return the state with the utilities of the round's devices."""
        round, ids = appointment.line.round, np.array(appointment.selected, np.int64)
        known = _explored(before.clock).after(round, ids, appointment.durations, trained.utilities)
        return {**appointment.state, **{f"oort.{name}": array for name, array in vars(known).items()}}

    def _select(self, eligible: Callable[[Ids], Ids], count: int, commit: Commit) -> Ids:
        ids, known = eligible(self.devices.candidates), _explored(commit.clock)
        step = self.schedule.pacer_seconds or oort.usual_duration(known)
        speeds = self.devices.conditions.population.of("speed", ids)
        random = generator_for(self.job.seed, commit.round + 1, "oort")
        return oort.select(ids, speeds, min(count, len(ids)), commit.round + 1, known, step, random)


def _explored(state: State) -> oort.Explored:
    names = [name for name in state if name.startswith("oort.")]
    return replace(oort.Explored(), **{name.removeprefix("oort."): state[name] for name in names})


def _groups(version: int, ids: Ids, course: Course, units: int) -> tuple[Group, ...]:
    used = course.used
    fewer = used & (course.units < units)
    parts = dict(zip(ids[fewer].tolist(), course.units[fewer].tolist(), strict=True))
    return (Group(version, tuple(ids[used].tolist()), parts),) if used.any() else ()
