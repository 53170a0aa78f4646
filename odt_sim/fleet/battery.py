"""The batteries of a fleet: training drains them, charging fills them, and training stops at a floor.

Every device class charges fully even in its shortest night, so a device that has not worked since a night began is full
at the end of that night. Only devices that worked later have a state; the charge of all others follows from seed and
time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.fleet.classes import JOULES_PER_WATT_HOUR, Flags, Floats, Ids
from odt_sim.fleet.habits import Habits, Times


@dataclass(frozen=True, eq=False)
class Batteries:
    """The batteries after all work committed so far.

    Attributes:
        habits: The habits that decide when devices charge.
        floor: The part of the capacity, 0 to 1, at which training stops.
        ids: `[worked]` ascending, the devices that worked since they were last full.
        joules: `[worked]`, the charge of each device at the end of its work.
        times: `[worked]`, the simulated seconds at which its work ended.
    """

    habits: Habits
    floor: float = 0.2
    ids: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    joules: Floats = field(default_factory=lambda: np.zeros(0))
    times: Floats = field(default_factory=lambda: np.zeros(0))

    def capacity(self, ids: Ids) -> Floats:
        """Return the energy of each device's full battery in joules, `[devices]`."""
        return self.habits.population.of("battery_watt_hours", ids) * JOULES_PER_WATT_HOUR

    def charge(self, ids: Ids, time: Times) -> Floats:
        """Return the energy in each battery in joules, `[devices]`, at one time or `[devices]` times."""
        times = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        full_since, full = self._night_before(ids, times)
        joules, since = self.capacity(ids), full.copy()
        places = np.searchsorted(self.ids, ids)
        worked = places < len(self.ids)
        worked[worked] = self.ids[places[worked]] == ids[worked]
        worked[worked] = self.times[places[worked]] > full_since[worked]
        joules[worked], since[worked] = self.joules[places[worked]], self.times[places[worked]]
        return self._run(ids, joules, since, times, None, np.zeros(len(ids)))[0]

    def usable(self, ids: Ids, time: float) -> Flags:
        """Return whether each battery is above the floor, `[devices]`."""
        return np.asarray(self.level(ids, time) > self.floor)

    def _night_before(self, ids: Ids, time: Times) -> tuple[Floats, Floats]:
        """Return the beginning and the end of the charging before the current or last one, both `[devices]`."""
        begin, _ = self.habits.night(ids, time)
        return self.habits.night(ids, begin - 1.0)

    def level(self, ids: Ids, time: Times) -> Floats:
        """Return the remaining part of each battery, 0 to 1, `[devices]`."""
        return self.charge(ids, time) / self.capacity(ids)

    def fraction(self, ids: Ids, time: Times, seconds: Floats, joules: Floats) -> Floats:
        """Return the part of its work, 0 to 1, that each device does before its battery reaches the floor, `[devices]`.

        Args:
            ids: The devices, `[devices]`.
            time: The time at which the work begins: one time or `[devices]`.
            seconds: `[devices]`, the duration of the whole work.
            joules: `[devices]`, the energy of the whole work, spent evenly.
        """
        begin = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        floor = self.floor * self.capacity(ids)
        _, stopped = self._run(ids, self.charge(ids, time), begin, begin + seconds, _watts(joules, seconds), floor)
        part = np.divide(stopped - begin, seconds, out=np.ones(len(ids)), where=seconds > 0)
        return np.where(stopped >= begin + seconds, 1.0, np.clip(part, 0, 1))  # differences of large times are inexact

    def after(self, ids: Ids, time: Times, seconds: Floats, joules: Floats) -> "Batteries":
        """Return the batteries after work that begins at `time`; see `fraction` for the arguments.

        The device uses no other energy during the work; energy from charging in that time is added.
        """
        begin = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        left, _ = self._run(
            ids, self.charge(ids, time), begin, begin + seconds, _watts(joules, seconds), np.full(len(ids), -np.inf)
        )
        left = np.maximum(left, 0)
        kept = ~np.isin(self.ids, ids)
        merged = np.concatenate([self.ids[kept], ids])
        order = np.argsort(merged, kind="stable")
        values = [
            np.concatenate([old[kept], new])[order] for old, new in ((self.joules, left), (self.times, begin + seconds))
        ]
        return replace(self, ids=merged[order], joules=values[0], times=values[1])

    def pruned(self, time: float) -> "Batteries":
        """Return the batteries at a time, without the state of devices that were fully charged since they worked."""
        if not len(self.ids):
            return self
        kept = self.times > self._night_before(self.ids, time)[0]
        return replace(self, ids=self.ids[kept], joules=self.joules[kept], times=self.times[kept])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for a commit."""
        return {"battery.ids": self.ids, "battery.joules": self.joules, "battery.times": self.times}

    def restored(self, state: Mapping[str, NDArray[Any]]) -> "Batteries":
        """Return the batteries, given a commit's arrays."""
        ids, joules, times = (state[f"battery.{name}"] for name in ("ids", "joules", "times"))
        return replace(self, ids=ids, joules=joules, times=times)

    def _run(
        self, ids: Ids, joules: Floats, since: Floats, until: Floats, watts: Floats | None, floor: Floats
    ) -> tuple[Floats, Floats]:
        """Return the charge at the end of a period, and the end: `until`, or the time at which work stops at the floor.

        Args:
            ids: The devices, `[devices]`.
            joules: `[devices]`, the charge at the beginning.
            since: `[devices]`, the beginning.
            until: `[devices]`, the latest end.
            watts: `[devices]`, the power of work; None for idle devices.
            floor: `[devices]`, the floor in joules.
        """
        joules, now = joules.copy(), since.copy()
        left = np.flatnonzero(now < until)
        while len(left):  # from one beginning or end of charging to the next
            some, start = ids[left], now[left]
            begin, end = self.habits.night(some, start)
            charges = (begin <= start) & (start < end)
            stop = np.minimum(np.where(charges, end, self.habits.next_night(some, start)), until[left])
            charging = self._column("charging_watts", some)
            if watts is None:
                rate = np.where(charges, charging, -self._column("idle_watts", some))
            else:
                rate = np.where(charges, charging, 0.0) - watts[left]
            spare = joules[left] - floor[left]
            down = np.divide(spare, -rate, out=np.full(len(left), np.inf), where=rate < 0)
            low = (start + down < stop) & (watts is not None)
            now[left] = np.where(low, start + np.maximum(down, 0), stop)
            reached = np.where(low, np.minimum(joules[left], floor[left]), joules[left] + rate * (stop - start))
            joules[left] = np.clip(reached, np.minimum(floor[left], 0), self.capacity(some))
            left = left[~low & (stop < until[left])]
        return joules, now

    def _column(self, name: str, ids: Ids) -> Floats:
        return self.habits.population.of(name, ids)


def _watts(joules: Floats, seconds: Floats) -> Floats:
    return np.divide(joules, seconds, out=np.zeros(len(joules)), where=seconds > 0)
