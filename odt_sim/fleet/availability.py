"""When devices are available for a round: pure functions of seed, device and time, on arrays of devices.

Time is in simulated seconds, of which 0 is a Monday, 00:00 UTC; see `odt_sim.fleet.habits`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from odt_sim.fleet.classes import Floats, Ids
from odt_sim.fleet.habits import DAY, HOUR, Habits, Times
from odt_sim.fleet.hashing import uniform

Flags = NDArray[np.bool_]


class Availability(Protocol):
    """Says when devices are available."""

    def available(self, ids: Ids, time: Times) -> Flags:
        """Return `[devices]`: whether each device is available.

        Args:
            ids: `[devices]`.
            time: The simulated seconds: one for all devices, or `[devices]`.
        """

    def until(self, ids: Ids, time: Times) -> Floats:
        """Return `[devices]`: until when each device stays available; `time` for one that is not, inf for always."""


@dataclass(frozen=True)
class Always:
    """Every device, all the time."""

    def available(self, ids: Ids, time: Times) -> Flags:
        """See `Availability`."""
        return np.ones(len(ids), bool)

    def until(self, ids: Ids, time: Times) -> Floats:
        """See `Availability`."""
        return np.full(len(ids), np.inf)


@dataclass(frozen=True, eq=False)
class Daily:
    """A share of the devices that rises and falls with the local time of day, as a cosine with its peak at 2 at night.

    A device is available while the share is above a number that is drawn for it each day, so once a day at most, around the
    peak; a day begins at 14 h, where the share is lowest. Bonawitz et al., "Towards federated learning at scale: system
    design", SysML 2019, saw four times as many devices at the peak of a day as at its low.

    Attributes:
        habits: The devices' time zones.
        peak: The share at the peak.
        low: The share at the low.
    """

    habits: Habits
    peak: float = 0.4
    low: float = 0.1

    def available(self, ids: Ids, time: Times) -> Flags:
        """See `Availability`."""
        _, since, half = self._day(ids, time)
        return np.asarray(np.abs(since - DAY / 2) < half)

    def until(self, ids: Ids, time: Times) -> Floats:
        """See `Availability`; a device that stays over the low of a day is available beyond the end that is given."""
        local, since, half = self._day(ids, time)
        end = time + (DAY / 2 + half) - since
        return np.where(np.abs(since - DAY / 2) < half, np.minimum(end, time + DAY - since), time + 0 * local)

    def _day(self, ids: Ids, time: Times) -> tuple[Floats, Floats, Floats]:
        """Return the local time, the seconds since the low, and for how long before and after the peak it is available."""
        local = self.habits.local(ids, time)
        day = np.floor((local - LOW * HOUR) / DAY)
        drawn = uniform(self.habits.seed, "daily", ids, day.astype(np.int64))
        # share(s) = low + (peak - low) * (1 + cos(2 pi s / DAY)) / 2, for s seconds from the peak
        ratio = np.clip((drawn - self.low) / max(self.peak - self.low, 1e-12), 0, 1)
        half = np.where(drawn >= self.peak, 0.0, DAY / (2 * np.pi) * np.arccos(2 * ratio - 1))
        half = np.where(drawn < self.low, DAY, half)  # at the low, too
        return local, local - LOW * HOUR - day * DAY, half


LOW = 14
"""The local hour at which the share of a daily curve is lowest; its peak is 12 hours later."""


@dataclass(frozen=True, eq=False)
class Charging:
    """A device that charges, is idle and on an unmetered network, as Bonawitz et al. (2019) ask for.

    Attributes:
        habits: The users' habits: a device that charges at night is idle and on Wi-Fi.
    """

    habits: Habits

    def available(self, ids: Ids, time: Times) -> Flags:
        """See `Availability`."""
        return self.habits.charging(ids, time)

    def until(self, ids: Ids, time: Times) -> Floats:
        """See `Availability`."""
        begin, end = self.habits.night(ids, time)
        return np.where((begin <= time) & (time < end), end, time)


@dataclass(frozen=True, eq=False)
class Markov:
    """Devices that go on and off at random: a Markov chain in continuous time with two states, for each device its own.

    With the rates `1 / on` and `1 / off` of leaving the states, the chain is the same as one that draws its state anew, on
    with probability `on / (on + off)`, at the events of a Poisson process of rate `1 / on + 1 / off` (uniformization). These
    events are drawn cell by cell of time, so that the state at any time needs no history.

    Attributes:
        seed: The run's seed.
        on: The mean seconds of an availability.
        off: The mean seconds between two.
    """

    seed: int
    on: float
    off: float

    @property
    def cell(self) -> float:
        """The seconds of a cell, in which two events are expected."""
        return 2 * self.on * self.off / (self.on + self.off)

    def available(self, ids: Ids, time: Times) -> Flags:
        """See `Availability`."""
        times = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        cell = np.floor(times / self.cell).astype(np.int64)
        state = np.zeros(len(ids), bool)
        left = np.arange(len(ids))
        while len(left):  # a cell without an event before the time needs the cell before
            last = self._last_event(ids[left], cell[left], times[left])
            found = last >= 0
            known = left[found]
            state[known] = self._is_on(ids[known], cell[known], last[found])
            left = left[~found]
            cell[left] -= 1
        return state

    def until(self, ids: Ids, time: Times) -> Floats:
        """See `Availability`."""
        times = np.broadcast_to(np.asarray(time, np.float64), len(ids)).copy()
        left = np.flatnonzero(self.available(ids, times))
        cell = np.floor(times / self.cell).astype(np.int64)
        after = times.copy()
        while len(left):  # the events of one cell after the other, until one turns the device off
            for at, on in self._events(ids[left], cell[left]):
                turned = ~on & np.isfinite(at) & (at > after[left]) & (times[left] == after[left])
                times[left] = np.where(turned, at, times[left])
            left = left[times[left] == after[left]]
            cell[left] += 1
        return times

    def _events(self, ids: Ids, cell: Ids) -> Iterator[tuple[Floats, Flags]]:
        """Yield the times of the events in a cell, in order, and the states that they draw; inf where there is none."""
        at, number = cell * self.cell, 0
        while True:
            gap = uniform(self.seed, f"gap {number}", ids, cell)
            at = at - np.log1p(-gap) * self.cell / 2
            inside = at < (cell + 1) * self.cell
            if not inside.any():
                return
            yield np.where(inside, at, np.inf), self._is_on(ids, cell, np.full(len(ids), number))
            number += 1

    def _last_event(self, ids: Ids, cell: Ids, time: Floats) -> Ids:
        """Return the number of the last event in a cell before a time; -1 for none."""
        last = np.full(len(ids), -1)
        for number, (at, _) in enumerate(self._events(ids, cell)):
            last = np.where(at <= time, number, last)
        return last

    def _is_on(self, ids: Ids, cell: Ids, number: Ids) -> Flags:
        drawn = uniform(self.seed, "state", ids, 64 * cell + number)
        return np.asarray(drawn < self.on / (self.on + self.off))
