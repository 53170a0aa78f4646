"""The availability of devices for a round: pure functions of seed, device and time, on arrays of devices.

Time is in simulated seconds since a Monday, 00:00 UTC; see `odt_sim.fleet.habits`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from odt_sim.fleet.classes import Flags, Floats, Ids
from odt_sim.fleet.habits import DAY, HOUR, Habits, Times
from odt_sim.fleet.hashing import uniform

LOW = 14
"""The local hour at which the share of a daily curve is lowest; the peak is 12 hours later."""
EVENTS = 6
"""The number of events that are drawn at once: two are expected in a cell, and one cell in 200 has more than six."""
MOST_EVENTS = 1024
"""A number that exceeds the events of any cell."""


class Availability(Protocol):
    """The interface of availability: when devices are available."""

    def available(self, ids: Ids, time: Times) -> Flags:
        """Return whether each device is available, `[devices]`.

        Args:
            ids: The devices, `[devices]`.
            time: The simulated seconds: one time for all devices, or `[devices]`.
        """

    def until(self, ids: Ids, time: Times) -> Floats:
        """Return until when each device stays available, `[devices]`: `time` if it is not available, inf for always."""


@dataclass(frozen=True)
class Always:
    """All devices are available all the time."""

    def available(self, ids: Ids, time: Times) -> Flags:
        """See `Availability`."""
        return np.ones(len(ids), bool)

    def until(self, ids: Ids, time: Times) -> Floats:
        """See `Availability`."""
        return np.full(len(ids), np.inf)


@dataclass(frozen=True, eq=False)
class Daily:
    """The share of available devices follows the local time of day, as a cosine with its peak at 2:00 at night.

    A device is available while the share is above a number that is drawn for the device each day: at most once a day,
    around the peak. A day begins at 14:00, when the share is lowest. Bonawitz et al., "Towards federated learning at
    scale: system design", SysML 2019, saw four times as many devices at the peak of a day as at its low.

    Attributes:
        habits: The devices' time zones.
        peak: The share of available devices at the peak.
        low: The share of available devices at the low.
    """

    habits: Habits
    peak: float = 0.4
    low: float = 0.1

    def available(self, ids: Ids, time: Times) -> Flags:
        """See `Availability`."""
        since, drawn = self._day(ids, time)
        share = self.low + (self.peak - self.low) * (1 - np.cos(2 * np.pi / DAY * since)) / 2
        return np.asarray(drawn < share)

    def until(self, ids: Ids, time: Times) -> Floats:
        """See `Availability`; a device that stays available beyond the low of a day may be available for longer."""
        since, drawn = self._day(ids, time)
        # share(s) = low + (peak - low) * (1 + cos(2 pi s / DAY)) / 2, for s seconds from the peak
        ratio = np.clip((drawn - self.low) / max(self.peak - self.low, 1e-12), 0, 1)
        half = np.where(drawn >= self.peak, 0.0, DAY / (2 * np.pi) * np.arccos(2 * ratio - 1))
        half = np.where(drawn < self.low, DAY, half)  # available even at the low
        end = time + (DAY / 2 + half) - since
        return np.where(np.abs(since - DAY / 2) < half, np.minimum(end, time + DAY - since), time)

    def _day(self, ids: Ids, time: Times) -> tuple[Floats, Floats]:
        """Return the seconds since each device's day began, and the number that is drawn for it on this day."""
        local = self.habits.local(ids, time) - LOW * HOUR
        day = np.floor(local / DAY)
        return local - day * DAY, uniform(self.habits.seed, "daily", ids, day.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Charging:
    """Devices are available while they charge, are idle and on an unmetered network, as in Bonawitz et al. (2019).

    Attributes:
        habits: The users' habits; a device that charges at night is idle and on Wi-Fi.
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
    """Devices go on and off at random: each follows its own continuous-time Markov chain with two states.

    With the rates `1 / on` and `1 / off` of leaving the states, the chain equals one that redraws its state, on with
    probability `on / (on + off)`, at the events of a Poisson process of rate `1 / on + 1 / off` (uniformization). These
    events are drawn for each cell of time, so that the state at any time needs no history.

    Attributes:
        seed: The run's seed.
        on: The mean duration of an availability in seconds.
        off: The mean duration between two availabilities in seconds.
    """

    seed: int
    on: float
    off: float

    @property
    def cell(self) -> float:
        """The length of a cell in seconds, with two expected events."""
        return 2 * self.on * self.off / (self.on + self.off)

    def available(self, ids: Ids, time: Times) -> Flags:
        """See `Availability`."""
        times = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        cell = np.floor(times / self.cell).astype(np.int64)
        state = np.zeros(len(ids), bool)
        left = np.arange(len(ids))
        while len(left):  # if a cell has no event before the time, look at the cell before it
            last = (self._events(ids[left], cell[left]) <= times[left, None]).sum(1) - 1
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
        while len(left):  # look at cell after cell until an event turns the device off
            at = self._events(ids[left], cell[left])
            numbers = np.arange(at.shape[1])
            on = self._is_on(
                np.repeat(ids[left], len(numbers)), np.repeat(cell[left], len(numbers)), np.tile(numbers, len(left))
            )
            turns = np.isfinite(at) & (at > times[left, None]) & ~on.reshape(at.shape)
            first = turns.argmax(1)
            off = turns.any(1)
            times[left[off]] = at[off, first[off]]
            left = left[~off]
            cell[left] += 1
        return times

    def _events(self, ids: Ids, cell: Ids) -> Floats:
        """Return the times of the events in a cell of each device, `[devices, most]`, in order; inf after the last."""
        start = (cell * self.cell)[:, None]
        found = start
        while True:
            number = found.shape[1] - 1 + np.arange(EVENTS)
            counts = np.repeat(cell * MOST_EVENTS, EVENTS) + np.tile(number, len(ids))
            gaps = -np.log1p(-uniform(self.seed, "gap", np.repeat(ids, EVENTS), counts)) * self.cell / 2
            found = np.concatenate([found, found[:, -1:] + gaps.reshape(-1, EVENTS).cumsum(1)], axis=1)
            if (found[:, -1] >= start[:, 0] + self.cell).all():
                inside = found[:, 1:]
                return np.where(inside < start + self.cell, inside, np.inf)

    def _is_on(self, ids: Ids, cell: Ids, number: Ids) -> Flags:
        drawn = uniform(self.seed, "state", ids, cell * MOST_EVENTS + number)
        return np.asarray(drawn < self.on / (self.on + self.off))
