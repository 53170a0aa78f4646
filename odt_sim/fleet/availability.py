"""The availability of devices for a round: pure functions of seed, device and time, on arrays of devices.

Time is in simulated seconds since a Monday, 00:00 UTC; see `odt_sim.fleet.habits`. A trace is a CSV file with the
columns device, from and to, in simulated seconds.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np

from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.fleet.classes import Flags, Floats, Ids
from odt_sim.fleet.draws import uniform
from odt_sim.fleet.habits import DAY, HOUR, Habits, Times

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
        times = start
        while True:
            number = times.shape[1] - 1 + np.arange(EVENTS)
            counts = np.repeat(cell * MOST_EVENTS, EVENTS) + np.tile(number, len(ids))
            gaps = -np.log1p(-uniform(self.seed, "gap", np.repeat(ids, EVENTS), counts)) * self.cell / 2
            times = np.concatenate([times, times[:, -1:] + gaps.reshape(-1, EVENTS).cumsum(1)], axis=1)
            if (times[:, -1] >= start[:, 0] + self.cell).all():
                inside = times[:, 1:]
                return np.where(inside < start + self.cell, inside, np.inf)

    def _is_on(self, ids: Ids, cell: Ids, number: Ids) -> Flags:
        drawn = uniform(self.seed, "state", ids, cell * MOST_EVENTS + number)
        return np.asarray(drawn < self.on / (self.on + self.off))


COLUMNS = ("device", "from", "to")


@dataclass(frozen=True, eq=False)
class Trace:
    """The times at which devices are available; a device without a line is never available.

    Attributes:
        where: The file's name, for errors.
        first: `[devices + 1]`, the position of each device's first interval in `begins` and `ends`.
        begins: `[intervals]` seconds, ascending for each device; adjacent intervals are merged.
        ends: `[intervals]` seconds.
        period: Seconds after which the trace repeats, at least all `ends`; None if it does not repeat.
    """

    where: str
    first: Ids
    begins: Floats
    ends: Floats
    period: float | None = None

    @classmethod
    def read(cls, path: Path, devices: int, period: float | None = None) -> "Trace":
        """Read a trace.

        Args:
            path: The CSV file.
            devices: The number of devices in the fleet.
            period: Seconds after which the trace repeats; None if it does not repeat.

        Raises:
            ConfigurationError: The file cannot be read, lacks a column, or has a line that does not fit.
        """
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigurationError(f"{path}: cannot read the trace ({reason}); check fleet.availability") from error
        reader = csv.DictReader(lines)
        if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            columns = ", ".join(reader.fieldnames or ()) or "none"
            raise ConfigurationError(
                f"{path}: lacks the column {missing[0]!r}; expected {', '.join(COLUMNS)}, found {columns}"
            )
        rows = [_row(row, f"{path}, line {number}", devices, period) for number, row in enumerate(reader, 2)]
        if not rows:
            raise ConfigurationError(f"{path}: has no rows, so no device is ever available; add some")
        return cls._of(rows, str(path), devices, period)

    @classmethod
    def _of(cls, rows: Sequence[tuple[int, float, float]], where: str, devices: int, period: float | None) -> "Trace":
        table = np.array(rows, np.float64)
        device, begins, ends = table[np.lexsort((table[:, 1], table[:, 0]))].T
        overlaps = np.flatnonzero((device[1:] == device[:-1]) & (begins[1:] < ends[:-1]))
        if len(overlaps):
            at = overlaps[0]
            raise ConfigurationError(
                f"{where}: two intervals of device {device[at]:.0f} overlap, {begins[at]:g} to {ends[at]:g} and "
                f"{begins[at + 1]:g} to {ends[at + 1]:g}; merge them"
            )
        touches = (device[1:] == device[:-1]) & (begins[1:] == ends[:-1])  # such as hours of a log
        first, last = ~np.append(False, touches), ~np.append(touches, False)
        device, begins, ends = device[first], begins[first], ends[last]
        return cls(where, np.searchsorted(device, np.arange(devices + 1)).astype(np.int64), begins, ends, period)

    @property
    def end(self) -> float:
        """The seconds at which the trace ends; infinite if it repeats."""
        return float(self.ends.max()) if self.period is None else np.inf

    @property
    def digest(self) -> str:
        """A short digest of the intervals, for comparing runs."""
        return sha256(b"".join(array.tobytes() for array in (self.first, self.begins, self.ends))).hexdigest()[:12]

    def available(self, ids: Ids, time: Times) -> Flags:
        """See `odt_sim.fleet.availability.Availability`.

        Raises:
            SimulationError: The trace does not extend beyond that time.
        """
        return self.until(ids, time) > time

    def until(self, ids: Ids, time: Times) -> Floats:
        """See `odt_sim.fleet.availability.Availability`.

        Raises:
            SimulationError: The trace does not extend beyond that time.
        """
        times = np.broadcast_to(np.asarray(time, np.float64), len(ids))
        if len(ids) and times.max() >= self.end:
            raise SimulationError(
                f"{self.where}: the trace ends after {self.end / 3600:g} h, but the run is at {times.max() / 3600:g} "
                "h; use a longer one, repeat it (fleet.availability.repeat_hours), or end the run earlier "
                "(fleet.schedule.hours)"
            )
        if self.period is None:
            return self._until(ids, times)
        inside = np.mod(times, self.period)
        ends = self._until(ids, inside)
        if (last := ends == self.period).any():  # intervals may continue in the next period
            next_ends = self._until(ids[last], np.zeros(np.count_nonzero(last)))
            next_ends[next_ends == self.period] = np.inf
            ends[last] = self.period + next_ends
        return np.where(ends > inside, times - inside + ends, times)

    def _until(self, ids: Ids, times: Floats) -> Floats:
        """Return the end of the interval that contains each time, `[devices]`; the time itself outside all intervals."""
        low, high = self.first[ids], self.first[ids + 1]
        start = low
        while (low < high).any():  # bisect each device's intervals for the first that ends after the time
            middle = (low + high) // 2
            later = self.ends[np.minimum(middle, len(self.ends) - 1)] > times
            low, high = np.where(later | (low >= high), low, middle + 1), np.where(later, middle, high)
        inside = (low < self.first[ids + 1]) & (start < self.first[ids + 1])
        interval = np.minimum(low, len(self.ends) - 1)
        return np.where(inside & (self.begins[interval] <= times), self.ends[interval], times)


def _row(row: dict[str, str], where: str, devices: int, period: float | None) -> tuple[int, float, float]:
    try:
        device, begin, end = int(row["device"]), float(row["from"]), float(row["to"])
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"{where}: expected a device's number and two times in seconds, found {', '.join(map(str, row.values()))}"
        ) from None
    if not 0 <= device < devices:
        raise ConfigurationError(f"{where}: expected a device from 0 to {devices - 1}, found {device}")
    if not 0 <= begin < end < float("inf"):
        raise ConfigurationError(f"{where}: expected 0 <= from < to, found {begin:g} and {end:g}{_night(begin, end)}")
    if period is not None and end > period:
        raise ConfigurationError(
            f"{where}: ends at {end:g} s, after the {period:g} s at which the trace repeats; use a larger "
            "fleet.availability.repeat_hours, or continue the interval in a row from 0"
        )
    return device, begin, end


def _night(begin: float, end: float) -> str:
    """Return advice for an interval across midnight; empty for other intervals."""
    return "; split an interval over midnight in two, or continue counting beyond 86400" if 0 <= end < begin else ""
