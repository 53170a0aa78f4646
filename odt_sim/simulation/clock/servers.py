"""Asynchronous servers: FedBuff and FedAsync.

FedBuff (Nguyen et al. 2022): with `K` reports the server computes `w <- w + sum_i n_i s(t_i) d_i / sum_i n_i`, where
`d_i` is the change that a device made to the model it started with, `t_i` the number of server updates since then, and
`s(t) = 1 / sqrt(1 + t)`. The paper weights devices equally; here the strategy decides, by its `weighting` and
`server_learning_rate`.

FedAsync (Xie et al. 2019): with each report the server computes `w <- (1 - a) w + a w_i` with `a = mixing s(t_i)` and the
device's model `w_i`: as an update, `a (d_i + w_start - w)`. For its proximal term, use the strategy FedProx.
"""

from collections.abc import Callable, Set
from dataclasses import fields, replace

import numpy as np

from odt_sim.device.random import generator_for
from odt_sim.fleet.battery import Batteries
from odt_sim.fleet.draws import choose_eligible
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.timeline import Outcome
from odt_sim.simulation.clock.asynchronous import (
    FLIGHT,
    Arrivals,
    Flights,
    NoDeviceError,
    Server,
    arrivals,
    staleness_factor,
)
from odt_sim.simulation.clock.clock import Appointment, Clock, Group, Spent, State, spent
from odt_sim.simulation.clock.synchronous import synchronous_course
from odt_sim.simulation.clock.timetable import Floats, Ids
from odt_sim.strategies.base import Tensors, Updates, weights_of


class BufferedClock(Clock):
    """A server that updates its model after every `buffer` reports: FedBuff."""

    @property
    def _needed(self) -> tuple[str, int]:
        return "fleet.schedule.buffer", self._buffer

    @property
    def _buffer(self) -> int:
        return self.schedule.buffer

    def _decide(self, commit: Commit, without: Set[int]) -> Appointment | None:
        server = _server(commit)
        starts = _Starts(self, commit, without)
        concurrency = self.schedule.concurrency or self.job.fleet.cohort or len(self.devices.candidates)
        try:
            arrived = arrivals(
                server,
                starts.draw,
                starts.start,
                buffer=self._buffer,
                concurrency=concurrency,
                devices=int((~np.isin(self.devices.candidates, list(without))).sum()),
                max_staleness=self.schedule.max_staleness,
                until=self._limit(commit),
            )
        except NoDeviceError as error:
            raise self._no_devices(commit.round + 1, error.args[0], without, self._needed[1]) from error
        return None if arrived is None else self._appointed(server, arrived, starts.batteries)

    def _appointed(self, server: Server, arrived: Arrivals, batteries: Batteries) -> Appointment:
        after, stale = arrived.after, arrived.stale.copy()
        stale["outcome"] = Outcome.STALE
        ended = np.concatenate([arrived.used, stale, arrived.left])
        ended = ended[np.lexsort((ended["device"], ended["end"]))]
        done = Spent(**{field.name: ended[NAMES.get(field.name, field.name)] for field in fields(Spent)})
        staleness = server.version - arrived.used["version"]
        columns = done.columns(server.time, after.time, None, self._participants)
        return Appointment(
            groups=self._groups(arrived.used, self._factors(staleness)),
            line=done.line(after.version, server.time, after.time, None),
            columns={
                **columns,
                "selected": arrived.started,
                "stale": len(arrived.stale),
                "staleness": staleness.mean(),
            },
            state={"time": np.array([after.time]), **_flights(after), **batteries.pruned(after.time).state()},
            earlier=frozenset(after.flights["version"].tolist()),
        )

    def _factors(self, staleness: Ids) -> Floats:
        """Return the factors of updates, given their staleness in server updates."""
        schedule = self.schedule
        return staleness_factor(
            staleness,
            schedule.staleness,
            exponent=schedule.exponent,
            after=schedule.hinge_after,
            slope=schedule.hinge_slope,
        )

    def _groups(self, used: Flights, factors: Floats) -> list[Group]:
        """Return the reports, grouped by the version that they started with."""
        amount, groups = self.job.plan.amount, []
        for version in np.unique(used["version"]).tolist():
            of = np.flatnonzero(used["version"] == version)
            of = of[np.argsort(used["device"][of])]
            ids, units = used["device"][of].tolist(), used["units"][of].tolist()
            parts = {device: unit for device, unit in zip(ids, units, strict=True) if unit < amount}
            scaled = {device: float(factor) for device, factor in zip(ids, factors[of], strict=True) if factor != 1}
            groups.append(Group(version, tuple(ids), parts, scaled))
        return groups


class MixingClock(BufferedClock):
    """A server that mixes every reported model into its own: FedAsync."""

    @property
    def _buffer(self) -> int:
        return 1

    def _factors(self, staleness: Ids) -> Floats:
        return self.schedule.mixing * super()._factors(staleness)

    def mixed(
        self, appointment: Appointment, updates: Updates, now: Tensors, then: Callable[[int], Tensors]
    ) -> Updates:
        """Return the update as the step from the server's current model towards the device's model."""
        [group] = appointment.groups
        [factor] = group.factors.values() or (1.0,)
        moved = weights_of(then(group.version)) - weights_of(now)
        return replace(updates, mean={"weights": weights_of(updates.mean) + moved * factor})


class _Starts:
    """Starts the devices of one server update.

    Attributes:
        batteries: The batteries after the work of all devices that were started.
    """

    def __init__(self, clock: BufferedClock, commit: Commit, without: Set[int]) -> None:
        self._clock, self._commit, self._without = clock, commit, np.array(sorted(without), np.int64)
        self.batteries = clock.batteries_of(commit)
        self._draws = 0

    def draw(self, count: int, time: float, without: Ids) -> Ids:
        """Draw eligible devices."""
        excluded, devices = np.union1d(without, self._without), self._clock.devices
        self._draws += 1
        random = generator_for(self._clock.job.seed, self._commit.round + 1, "start", self._draws)

        def eligible(ids: Ids) -> Ids:
            return devices.eligible(ids[~np.isin(ids, excluded)], time, self.batteries)

        return choose_eligible(devices.candidates, count, eligible, random)

    def start(self, ids: Ids, time: float) -> Flights:
        """Return the flights of devices, and subtract their energy from the batteries."""
        clock, plan = self._clock, self._clock.job.plan
        planned = clock.planned(ids, time, self._commit, self.batteries)
        partial = clock.job.strategy.partial_work and plan.amount > 1
        course = synchronous_course(planned.trips, len(ids), units=plan.amount, partial=partial)
        done = spent(clock.devices, planned, course, time)
        self.batteries = done.drained(self.batteries)
        flights = np.zeros(len(ids), FLIGHT)
        for name, column in {**vars(done), "units": course.units}.items():
            flights[NAMES.get(name, name)] = column
        return flights


NAMES = {"ids": "device", "outcomes": "outcome", "begins": "begin", "stops": "end"}
"""The columns of a flight, by their names in `Spent` if these differ."""


def _server(commit: Commit) -> Server:
    """Return the state of the server after a round."""
    if not commit.clock:
        return Server()
    flights = np.zeros(len(commit.clock["flights.device"]), FLIGHT)
    for name in FLIGHT.names or ():
        flights[name] = commit.clock[f"flights.{name}"]
    return Server(commit.round, float(commit.clock["time"][0]), flights)


def _flights(server: Server) -> State:
    """Return the columns of the devices in flight for a commit."""
    kept = {name: np.ascontiguousarray(server.flights[name]) for name in FLIGHT.names or ()}
    return {f"flights.{name}": column for name, column in kept.items()}
