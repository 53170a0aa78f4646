"""The batteries of a fleet: training drains them, charging fills them, and training stops at a floor.

A class of devices charges fully in its shortest night, so a device that has not worked since a night began is full at the end
of that night. Only devices that worked later have a state; that of all others follows from seed and time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.fleet.classes import JOULES_PER_WATT_HOUR, Floats, Ids
from odt_sim.fleet.habits import HOUR, LONGEST_DAY, Habits, Times


@dataclass(frozen=True, eq=False)
class Batteries:
    """The batteries after the work that was committed so far.

    Attributes:
        habits: When devices charge.
        floor: The part of the capacity, 0 to 1, below which training does not take a battery.
        ids: `[worked]` ascending, the devices that worked since they were last full.
        joules: `[worked]`, the charge of each at the end of its work.
        times: `[worked]`, the simulated seconds of these ends.
    """

    habits: Habits
    floor: float = 0.2
    ids: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    joules: Floats = field(default_factory=lambda: np.zeros(0))
    times: Floats = field(default_factory=lambda: np.zeros(0))

    def capacity(self, ids: Ids) -> Floats:
        """Return `[devices]`: the energy of each device's full battery in joules."""
        return self.habits.population.of("battery_watt_hours", ids) * JOULES_PER_WATT_HOUR

    def charge(self, ids: Ids, time: Times) -> Floats:
        """Return `[devices]`: the energy in each battery in joules, at one time or `[devices]` times."""
        times = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        begin, _ = self.habits.night(ids, times)
        full_since, full = self.habits.night(ids, begin - 1.0)  # the night before
        joules, since = self.capacity(ids), full.copy()
        known, places = self._worked(ids)
        known[known] = self.times[places[known]] > full_since[known]
        joules[known], since[known] = self.joules[places[known]], self.times[places[known]]
        return self._advanced(ids, joules, since, times)

    def usable(self, ids: Ids, time: float) -> NDArray[np.bool_]:
        """Return `[devices]`: whether each battery is above the floor, that of most without computing its charge."""
        idle = self.habits.population["idle_watts"] * HOUR * LONGEST_DAY
        capacity = self.habits.population["battery_watt_hours"] * JOULES_PER_WATT_HOUR
        lasts = capacity - idle > self.floor * capacity  # whatever its user does, if it never trains
        usable = lasts[self.habits.population.of_device[ids]]
        unsure = np.flatnonzero(self._worked(ids)[0] | ~usable)
        usable[unsure] = self.level(ids[unsure], time) > self.floor
        return np.asarray(usable)

    def _worked(self, ids: Ids) -> tuple[NDArray[np.bool_], Ids]:
        """Return `[devices]` each: whether it has worked since it was last full, and its place in `ids`."""
        places = np.searchsorted(self.ids, ids)
        known = places < len(self.ids)
        known[known] = self.ids[places[known]] == ids[known]
        return known, places

    def level(self, ids: Ids, time: Times) -> Floats:
        """Return `[devices]`: the part of each battery that is left, 0 to 1."""
        return self.charge(ids, time) / self.capacity(ids)

    def fraction(self, ids: Ids, time: Times, seconds: Floats, joules: Floats) -> Floats:
        """Return `[devices]`: the part of some work, 0 to 1, that each device does before its battery is at the floor.

        Args:
            ids: `[devices]`.
            time: When the work begins: one time or `[devices]`.
            seconds: `[devices]`, how long all of it takes.
            joules: `[devices]`, all of its energy, spent evenly.
        """
        spare = self.charge(ids, time) - self.floor * self.capacity(ids)
        needed = joules - self._charged(ids, time, seconds)
        part = np.divide(spare, needed, out=np.ones(len(ids)), where=needed > 0)
        return np.where(spare > 0, np.clip(part, 0, 1), 0.0)

    def after(self, ids: Ids, time: Times, seconds: Floats, joules: Floats) -> "Batteries":
        """Return the batteries after work that begins at `time`; see `fraction` for the arguments.

        The energy of the work is all that the device uses meanwhile; what charges in that time is added.
        """
        begin = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        left = np.maximum(self.charge(ids, time) - joules, 0) + self._charged(ids, time, seconds)
        left = np.minimum(left, self.capacity(ids))
        kept = ~np.isin(self.ids, ids)
        merged = np.concatenate([self.ids[kept], ids])
        order = np.argsort(merged, kind="stable")
        values = [
            np.concatenate([old[kept], new])[order] for old, new in ((self.joules, left), (self.times, begin + seconds))
        ]
        return replace(self, ids=merged[order], joules=values[0], times=values[1])

    def pruned(self, time: float) -> "Batteries":
        """Return the batteries at a time without the devices that were fully charged since they worked."""
        if not len(self.ids):
            return self
        begin, _ = self.habits.night(self.ids, time)
        full_since, _ = self.habits.night(self.ids, begin - 1.0)
        kept = self.times > full_since
        return replace(self, ids=self.ids[kept], joules=self.joules[kept], times=self.times[kept])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a commit keeps."""
        return {"battery.ids": self.ids, "battery.joules": self.joules, "battery.times": self.times}

    def restored(self, state: Mapping[str, NDArray[Any]]) -> "Batteries":
        """Return the batteries of a commit's arrays."""
        ids, joules, times = (state[f"battery.{name}"] for name in ("ids", "joules", "times"))
        return replace(self, ids=ids, joules=joules, times=times)

    def _advanced(self, ids: Ids, joules: Floats, since: Floats, until: Floats) -> Floats:
        """Return the charge at `until` of idle devices, from that at `since`."""
        joules, now = joules.copy(), since.copy()
        left = np.flatnonzero(now < until)
        while len(left):
            some, start = ids[left], now[left]
            begin, end = self.habits.night(some, start)
            charges = (begin <= start) & (start < end)
            stop = np.minimum(np.where(charges, end, self.habits.next_night(some, start)), until[left])
            rate = np.where(charges, self._charging_watts(some), -self._column("idle_watts", some))
            joules[left] = np.clip(joules[left] + rate * (stop - start), 0, self.capacity(some))
            now[left] = stop
            left = left[stop < until[left]]
        return joules

    def _charged(self, ids: Ids, time: Times, seconds: Floats) -> Floats:
        """Return the joules that flow into each battery from `time` on, for some seconds of less than a day."""
        start = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        begin, end = self.habits.night(ids, start + seconds)
        overlap = np.minimum(end, start + seconds) - np.maximum(begin, start)
        return np.asarray(self._charging_watts(ids) * np.clip(overlap, 0, None))

    def _charging_watts(self, ids: Ids) -> Floats:
        return self._column("charging_watts", ids)

    def _column(self, name: str, ids: Ids) -> Floats:
        return self.habits.population.of(name, ids)
