"""The times at which people charge their phones and are on Wi-Fi: pure functions of seed, device and time.

Time is in seconds; 0 is Monday, 5 January 2026, 00:00 UTC. A device is in a time zone and charges once a night. The
hour at which it is plugged in and the duration are drawn for each night, around the device's own habit. While a device
charges, it is at home on Wi-Fi; in each other hour, it is on Wi-Fi with the probability `wifi_share` of its class.

Ferreira, Dey and Kostakos, "Understanding human-smartphone concerns: a study of battery life", Pervasive 2011, found
that most phones charge at night, once a day; the hours below are estimated from this study.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ConfigurationError
from odt_sim.fleet.classes import SHORTEST_NIGHT, Flags, Floats, Ids, Population
from odt_sim.fleet.draws import uniform

Times = float | Floats

HOUR, DAY = 3600.0, 86400.0
START = datetime(2026, 1, 5)
"""The date and time of time 0, in UTC."""

PLUGGED_IN = 22.5
"""The mean local hour of the day at which a device begins to charge."""
OWN_HABIT, EACH_NIGHT = 2.0, 1.0
"""The maximum deviations in hours: of a device's habit from the mean, and of a night from the device's habit."""
EARLIEST = PLUGGED_IN - OWN_HABIT - EACH_NIGHT
"""The earliest local hour at which a device begins to charge."""
LONGEST_DAY = 24 + 2 * EACH_NIGHT - SHORTEST_NIGHT
"""The maximum hours between the charging of two nights."""
LONGEST_NIGHT = 9.0
"""The maximum hours for which a device charges in a night."""


@dataclass(frozen=True, eq=False)
class Habits:
    """The habits of a fleet's users.

    Attributes:
        seed: The run's seed.
        population: The devices' classes.
        offsets: The hours by which each time zone is ahead of UTC.
        zones: `[devices]`, the number of each device's time zone.
    """

    seed: int
    population: Population
    offsets: Floats = field(default_factory=lambda: np.zeros(1))
    zones: NDArray[np.int16] | None = None

    @classmethod
    def of(cls, seed: int, population: Population, time_zones: Mapping[str, float] | None = None) -> "Habits":
        """Draw the time zone of each device.

        Args:
            seed: The run's seed.
            population: The devices' classes.
            time_zones: The share of each time zone by its name, such as `Europe/Berlin`; None for UTC only.

        Raises:
            ConfigurationError: A time zone is unknown, or a share is not above 0.
        """
        if not time_zones:
            return cls(seed, population)
        shares = np.cumsum(list(time_zones.values()))
        drawn = uniform(seed, "time zone", np.arange(len(population))) * shares[-1]
        zones = np.searchsorted(shares[:-1], drawn, side="right").astype(np.int16)
        return cls(seed, population, np.array([offset_of(name) for name in time_zones]), zones)

    def local(self, ids: Ids, time: Times) -> Floats:
        """Return the seconds of local time since Monday, 00:00, `[devices]`."""
        return self.ahead(ids) + time

    def ahead(self, ids: Ids) -> Floats:
        """Return the whole seconds by which local time is ahead of UTC, `[devices]`."""
        offsets = np.round(HOUR * self.offsets)
        return np.full(len(ids), offsets[0]) if self.zones is None else offsets[self.zones[ids]]

    def charging(self, ids: Ids, time: Times) -> Flags:
        """Return whether each device charges, `[devices]`."""
        begin, end = self.night(ids, time)
        return np.asarray((begin <= time) & (time < end))

    def night(self, ids: Ids, time: Times) -> tuple[Floats, Floats]:
        """Return the beginning and the end of the current charging, or else of the last one, both `[devices]`."""
        ahead = self.ahead(ids)
        night = self._number(ahead + time)
        begin, end = self._plugged(ids, ahead, night)
        earlier = begin > time
        if earlier.any():
            begin[earlier], end[earlier] = self._plugged(ids[earlier], ahead[earlier], night[earlier] - 1)
        return begin, end

    def next_night(self, ids: Ids, time: Times) -> Floats:
        """Return when each device next begins to charge after `time`, `[devices]`."""
        ahead = self.ahead(ids)
        night = self._number(ahead + time)
        begin, _ = self._plugged(ids, ahead, night)
        late = begin <= time
        if late.any():
            begin[late] = self._plugged(ids[late], ahead[late], night[late] + 1)[0]
        return begin

    @staticmethod
    def _number(local: Floats) -> Ids:
        """Return the number of the latest night that has begun for the earliest devices."""
        return np.floor((local - HOUR * EARLIEST) / DAY).astype(np.int64)

    def _plugged(self, ids: Ids, ahead: Floats, night: Ids) -> tuple[Floats, Floats]:
        """Return the beginning and the end of charging in numbered nights, in whole seconds."""
        habit = OWN_HABIT * (2 * uniform(self.seed, "plugged in", ids) - 1)
        deviation = EACH_NIGHT * (2 * uniform(self.seed, "night", ids, night) - 1)
        hours = SHORTEST_NIGHT + (LONGEST_NIGHT - SHORTEST_NIGHT) * uniform(self.seed, "hours", ids, night)
        begin = np.floor(night * DAY + HOUR * (PLUGGED_IN + habit + deviation)) - ahead
        return begin, np.floor(begin + HOUR * hours)

    def wifi(self, ids: Ids, time: Times) -> Flags:
        """Return whether each device is on Wi-Fi, `[devices]`."""
        hour = np.floor(self.local(ids, time) / HOUR).astype(np.int64)
        share = self.population.of("wifi_share", ids)
        return np.asarray(self.charging(ids, time) | (uniform(self.seed, "wifi", ids, hour) < share))


def offset_of(zone: str) -> float:
    """Return the hours by which a time zone is ahead of UTC at time 0; later clock changes are ignored.

    Raises:
        ConfigurationError: The time zone is unknown.
    """
    try:
        offset = START.replace(tzinfo=ZoneInfo(zone)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"fleet.availability.time_zones: expected names such as Europe/Berlin, found {zone!r}, which this "
            "machine does not have"
        ) from error
    return (offset or timedelta()) / timedelta(hours=1)
