"""Availability from a trace: a CSV file with the columns device, from and to, in simulated seconds."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.fleet.classes import Flags, Floats, Ids
from odt_sim.fleet.habits import Times

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
            found = ", ".join(reader.fieldnames or ()) or "none"
            raise ConfigurationError(
                f"{path}: lacks the column {missing[0]!r}; expected {', '.join(COLUMNS)}, found {found}"
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
        found = (low < self.first[ids + 1]) & (start < self.first[ids + 1])
        place = np.minimum(low, len(self.ends) - 1)
        return np.where(found & (self.begins[place] <= times), self.ends[place], times)


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
