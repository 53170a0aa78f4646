"""An asynchronous server on the clock: devices train at their own pace, and reports update the server's model.

Nguyen et al. 2022, Federated Learning with Buffered Asynchronous Aggregation (FedBuff), algorithm 1: `concurrency` devices
train at any time; the server updates its model with every `buffer` reports. Xie et al. 2019, Asynchronous Federated
Optimization (FedAsync), algorithm 1, is the case of a single report.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from odt_sim.persistence.timeline import USED
from odt_sim.simulation.clock.timetable import Floats, Ids

FLIGHT = np.dtype(
    [
        ("device", "<i8"),
        ("version", "<i8"),
        ("begin", "<f8"),
        ("end", "<f8"),
        ("outcome", "i1"),
        ("units", "<i8"),
        ("joules", "<f8"),
        ("bytes_down", "<i8"),
        ("bytes_up", "<i8"),
        ("wifi", "?"),
    ]
)
"""A device in flight: the version of the server's model that it started with, when it begins to download and when it is
done, its outcome (an `odt_sim.persistence.timeline.Outcome`), the epochs or steps that it finishes, its energy and
traffic, and whether it is on Wi-Fi."""

Flights = NDArray[np.void]

WAIT = 600.0
"""Seconds after which the server looks again for available devices."""
LONGEST_WAIT = 30 * 86400.0
"""Seconds without enough devices after which a run gives up."""

Draw = Callable[[int, float, Ids], Ids]
"""Draws at most `count` devices that are eligible at a time, excluding given devices."""
Start = Callable[[Ids, float], Flights]
"""Returns the flights of devices that start at a given time."""


@dataclass(frozen=True, eq=False)
class Server:
    """The state of an asynchronous server between two of its updates.

    Attributes:
        version: The number of its updates so far.
        time: The simulated seconds of the last update.
        flights: `[in flight]` of `FLIGHT`, sorted by device.
    """

    version: int = 0
    time: float = 0.0
    flights: Flights = field(default_factory=lambda: np.empty(0, FLIGHT))


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The arrivals at an asynchronous server for one update.

    Attributes:
        after: The server after the update.
        used: `[buffer]` of `FLIGHT`, the reports of the update in the order of arrival.
        stale: Reports that were too old.
        left: Devices that left before they reported.
        started: The number of devices that started.
    """

    after: Server
    used: Flights
    stale: Flights
    left: Flights
    started: int


class NoDeviceError(Exception):
    """No device was available, or none reported, for longer than `LONGEST_WAIT`; the argument is the time of the last."""


def arrivals(
    server: Server,
    draw: Draw,
    start: Start,
    *,
    buffer: int,
    concurrency: int,
    devices: int,
    max_staleness: int | None = None,
    until: float = np.inf,
) -> Arrivals | None:
    """Run the clock until the server's next update; None if reports are still missing when the run ends.

    A device reports at most once from each version of the model, because its work would be bit-for-bit the same. Devices
    that left start again from the same version once all others have started from it and none is in flight.

    Args:
        server: The server after its last update.
        draw: Draws devices to start.
        start: Starts the drawn devices.
        buffer: The number of reports per update.
        concurrency: The number of devices that train at the same time.
        devices: The number of devices that `draw` chooses from.
        max_staleness: The maximum number of server updates since a device started for its report to count; None for no
            limit.
        until: The simulated seconds at which the run ends.

    Raises:
        NoDeviceError: No device was available, or none reported, for too long.
    """
    now = last = reported = server.time
    flights, version, started = server.flights, server.version, 0
    used, stale, left = list[Flights](), list[Flights](), list[Flights]()
    begun, gone = flights["device"][flights["version"] == version], list[int]()
    while len(used) < buffer:
        if now >= until:
            return None
        if not len(flights) and len(begun) == devices:
            if not gone or now - reported > LONGEST_WAIT:
                raise NoDeviceError(reported)
            begun, gone, now = np.setdiff1d(begun, gone), [], now + WAIT
        if len(flights) < concurrency:
            new = draw(concurrency - len(flights), now, np.union1d(flights["device"], begun))
            if len(new):
                fresh = start(new, now)
                fresh["version"] = version
                flights, begun = np.concatenate([flights, fresh]), np.union1d(begun, new)
                flights, started = flights[np.argsort(flights["device"])], started + len(new)
        first = float(flights["end"].min()) if len(flights) else np.inf
        if len(flights) < concurrency and now + WAIT < first:
            now += WAIT
            if not len(flights) and now - last > LONGEST_WAIT:
                raise NoDeviceError(last)
            continue
        now = last = first
        place = int(np.argmin(flights["end"]))
        ended, flights = flights[place : place + 1], np.delete(flights, place)
        old = max_staleness is not None and version - int(ended["version"][0]) > max_staleness
        if ended["outcome"][0] not in USED:
            left.append(ended)
            gone += ended["device"][ended["version"] == version].tolist()
        else:
            reported = now
            (stale if old else used).append(ended)
    after = replace(server, version=version + 1, time=now, flights=flights)
    return Arrivals(after, _joined(used), _joined(stale), _joined(left), started)


def staleness_factor(staleness: Ids, kind: str, *, exponent: float, after: int, slope: float) -> Floats:
    """Return the factors by which stale updates are scaled (Xie et al. 2019, section 5.2).

    Args:
        staleness: `[updates]`, the number of server updates since each device started.
        kind: `constant`: 1; `polynomial`: `(1 + s)^-exponent`; `hinge`: 1 up to `after`, then
            `1 / (slope (s - after) + 1)`. FedBuff's weighting is the polynomial with the exponent 0.5.
        exponent: The exponent of the polynomial.
        after: The start of the hinge's decrease.
        slope: The slope of the hinge.
    """
    if kind == "constant":
        return np.ones(len(staleness))
    if kind == "polynomial":
        return np.asarray((1.0 + staleness) ** -exponent)
    return 1.0 / (slope * np.maximum(staleness - after, 0.0) + 1.0)


def _joined(flights: list[Flights]) -> Flights:
    return np.concatenate([np.empty(0, FLIGHT), *flights])
