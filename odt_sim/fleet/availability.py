"""When devices are available for a round: pure functions of seed, device and time, on arrays of devices.

Time is in simulated seconds, of which 0 is a Monday, 00:00 UTC; see `odt_sim.fleet.habits`.
"""

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
