"""Synchronous rounds on the clock: a cohort of the devices that are available, chosen uniformly or by utility."""

import math
from collections.abc import Set
from dataclasses import replace

import numpy as np

from odt_sim.device.random import generator_for
from odt_sim.errors import SimulationError
from odt_sim.fleet.battery import Batteries
from odt_sim.persistence.commit import Commit
from odt_sim.simulation.clock import oort
from odt_sim.simulation.clock.asynchronous import LONGEST_WAIT, WAIT
from odt_sim.simulation.clock.clock import Appointment, Clock, Group, State, spent
from odt_sim.simulation.clock.devices import Planned
from odt_sim.simulation.clock.synchronous import synchronous_course
from odt_sim.simulation.clock.timetable import Course, Ids
from odt_sim.simulation.job import Trained


class SynchronousClock(Clock):
    """A server that waits for the reports of each round; see `odt_sim.simulation.clock.synchronous`."""

    def _decide(self, commit: Commit, without: Set[int]) -> Appointment:
        round, schedule, plan = commit.round + 1, self._schedule, self._job.plan
        batteries = self._batteries_of(commit)
        start, eligible = self._wait(commit, without, batteries)
        needed = self._job.fleet.cohort or len(eligible)
        count = min(len(eligible), math.ceil(needed * schedule.overselection))
        ids = self._select(eligible, count, commit)
        planned = self._planned(ids, start, commit, batteries)
        course = synchronous_course(
            planned.trips,
            needed,
            deadline=schedule.deadline,
            units=plan.amount,
            partial=self._job.strategy.partial_work and plan.amount > 1,
        )
        self._check_deadline(round, planned, course)
        done, end = spent(self._devices, planned, course, start), start + course.end
        return Appointment(
            groups=_groups(commit.round, ids, course, plan.amount) if course.used.sum() >= schedule.min_reports else (),
            line=done.line(round, start, end, len(eligible)),
            columns=done.columns(start, end, len(eligible), self._participants),
            state={
                "time": np.array([end]),
                **batteries.after(ids, start, course.stops, done.joules).pruned(end).state(),
            },
            durations=planned.trips.seconds,
        )

    def _wait(self, commit: Commit, without: Set[int], batteries: Batteries) -> tuple[float, Ids]:
        """Return when enough devices are available, and these."""
        least = max(self._job.fleet.cohort or 1, 1)
        candidates = np.setdiff1d(self._devices.candidates, sorted(without))
        time = since = float(commit.clock["time"][0]) if commit.clock else 0.0
        while True:
            eligible = self._devices.eligible(candidates, time, batteries)
            if len(eligible) >= least:
                return time, eligible
            time += WAIT
            if time - since > LONGEST_WAIT or len(candidates) < least:
                raise self._no_devices(commit.round + 1, since)

    def _select(self, eligible: Ids, count: int, commit: Commit) -> Ids:
        """Return the selected devices, ascending."""
        random = np.random.default_rng([self._job.seed, commit.round + 1, *b"cohort"])
        return np.sort(random.choice(eligible, count, replace=False))

    def _check_deadline(self, round: int, planned: Planned, course: Course) -> None:
        deadline, fastest = self._schedule.deadline, float(planned.trips.seconds.min())
        if deadline is not None and fastest > deadline and not course.used.any():
            raise SimulationError(
                f"round {round}: no device can report within fleet.schedule.deadline, {deadline:g} s; the fastest of "
                f"{len(planned.ids)} needs {fastest:.3g} s; allow more, or train less (train.epochs, train.steps)"
            )


class OortClock(SynchronousClock):
    """Selects by utility; see `odt_sim.simulation.clock.oort`."""

    def after(self, before: Commit, appointment: Appointment, trained: Trained) -> State:
        """Return the state with what the round's devices learned."""
        round, ids = appointment.line.round, np.array(appointment.selected, np.int64)
        known = _explored(before.clock).after(round, ids, appointment.durations, trained.utilities)
        return {**appointment.state, **{f"oort.{name}": array for name, array in vars(known).items()}}

    def _select(self, eligible: Ids, count: int, commit: Commit) -> Ids:
        known = _explored(commit.clock)
        step = self._schedule.pacer_seconds or oort.usual_duration(known)
        speeds = self._devices.conditions.population.of("speed", eligible)
        random = generator_for(self._job.seed, commit.round + 1, "oort")
        return oort.select(eligible, speeds, count, commit.round + 1, known, step, random)


def _explored(state: State) -> oort.Explored:
    names = [name for name in state if name.startswith("oort.")]
    return replace(oort.Explored(), **{name.removeprefix("oort."): state[name] for name in names})


def _groups(version: int, ids: Ids, course: Course, units: int) -> tuple[Group, ...]:
    used = course.used
    fewer = used & (course.units < units)
    parts = dict(zip(ids[fewer].tolist(), course.units[fewer].tolist(), strict=True))
    return (Group(version, tuple(ids[used].tolist()), parts),) if used.any() else ()
