"""The timeline of a run with a clock: a line of `timeline.jsonl`, and the ledger of its devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.persistence.records import Record


class Outcome(IntEnum):
    """How a device's participation in a round ended; `timeline.jsonl` contains the number."""

    REPORTED = 0
    """Its update arrived in time."""
    PARTIAL = 1
    """It stopped early, and its finished part of the work arrived in time."""
    LATE = 2
    """The round ended before its update arrived."""
    LEFT = 3
    """It became unavailable before its update arrived, or its battery reached the floor."""
    STALE = 4
    """Its update arrived after more server updates than `fleet.schedule.max_staleness`."""


USED = (Outcome.REPORTED, Outcome.PARTIAL)
"""The outcomes with an update that the server uses."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TimelineRecord(Record):
    """The work of selected devices until a round ended: a line of `timeline.jsonl`. Lists have one entry per device.

    With an asynchronous server, a device is in the line of the round in which it ended, though it may have begun
    earlier.
    """

    round: Annotated[int, "number of the round, from 1"]
    start: Annotated[float, "simulated seconds at which it began; 0 is a Monday, 00:00 UTC"]
    end: Annotated[float, "simulated seconds at which the server had its new model"]
    eligible: Annotated[int | None, "devices that could be selected at the start; null for asynchronous servers"]
    devices: Annotated[Sequence[int], "ids of the selected devices"]
    outcomes: Annotated[Sequence[int], "0 reported, 1 reported partial work, 2 late, 3 left, 4 too old"]
    begins: Annotated[Sequence[float], "simulated seconds at which each began to download"]
    stops: Annotated[Sequence[float], "simulated seconds at which each was done"]
    joules: Annotated[Sequence[float], "energy that each spent"]
    bytes_down: Annotated[Sequence[int], "bytes that each received"]
    bytes_up: Annotated[Sequence[int], "bytes that each sent"]
    wifi: Annotated[Sequence[int], "1 for a device on Wi-Fi, 0 on the cellular network"]


@dataclass(frozen=True, eq=False)
class Ledger:
    """The costs of a run for each device; all arrays are `[devices]`.

    Attributes:
        selected: Rounds in which it was selected.
        reported: Rounds in which the server used its update.
        busy_seconds: Seconds from download to upload.
        joules: Energy that it spent.
        bytes_wifi: Bytes received and sent on Wi-Fi.
        bytes_cellular: Bytes received and sent on the cellular network.
    """

    selected: NDArray[np.int64]
    reported: NDArray[np.int64]
    busy_seconds: NDArray[np.float64]
    joules: NDArray[np.float64]
    bytes_wifi: NDArray[np.int64]
    bytes_cellular: NDArray[np.int64]

    @classmethod
    def of(cls, timeline: Sequence[TimelineRecord], devices: int) -> "Ledger":
        """Return the totals of a timeline.

        Args:
            timeline: The lines of `timeline.jsonl`.
            devices: The number of devices of the fleet.
        """
        ids = _column(timeline, "devices", np.int64)
        used = np.isin(_column(timeline, "outcomes", np.int64), USED)
        wifi = _column(timeline, "wifi", np.int64) > 0
        sent = _column(timeline, "bytes_down", np.int64) + _column(timeline, "bytes_up", np.int64)
        busy = _column(timeline, "stops", np.float64) - _column(timeline, "begins", np.float64)

        def total(values: NDArray[Any]) -> NDArray[np.float64]:
            return np.asarray(np.bincount(ids, weights=values, minlength=devices), np.float64)

        return cls(
            selected=np.bincount(ids, minlength=devices),
            reported=total(used).astype(np.int64),
            busy_seconds=total(busy),
            joules=total(_column(timeline, "joules", np.float64)),
            bytes_wifi=total(np.where(wifi, sent, 0)).astype(np.int64),
            bytes_cellular=total(np.where(wifi, 0, sent)).astype(np.int64),
        )

    def of_device(self, device: int) -> dict[str, Any]:
        """Return the columns of a device."""
        return {name: column[device].item() for name, column in vars(self).items()}


def _column(timeline: Sequence[TimelineRecord], name: str, dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *(np.asarray(line[name], dtype) for line in timeline)])
