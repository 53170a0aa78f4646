"""A synchronous round on the clock: reports, deadline, and devices that leave (Bonawitz et al. 2019, section 2.2).

The server starts more devices than it needs. It ends the round when it has enough reports, at the deadline, or when no
device is left to wait for, whichever comes first.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.persistence.timeline import Outcome
from odt_sim.simulation.clock.timetable import Codes, Course, Floats, Ids, Trips, part


def synchronous_course(
    trips: Trips, needed: int, *, deadline: float | None = None, units: int = 1, partial: bool = False
) -> Course:
    """Return the course of a round in which all devices start at the same time.

    A device stops if it has to leave or would miss the deadline. If the server accepts partial work and the device has
    finished at least one unit of its plan, it sends the finished part; otherwise its update is lost.

    Args:
        trips: The work of the selected devices, in the order of their ids.
        needed: The number of reports that end the round.
        deadline: Seconds after which the round ends; None for no deadline.
        units: Epochs or steps of the whole plan.
        partial: Whether the server accepts partial work.
    """
    limit = np.inf if deadline is None else deadline
    arrives = np.where(trips.leaves < trips.seconds, np.inf, trips.seconds)
    cuts, finished = np.full(len(arrives), np.inf), np.full(len(arrives), units, np.int64)
    if partial:
        stop = np.minimum(trips.leaves, limit - trips.upload)
        computed = part(stop - trips.received, trips.compute)
        finished = np.floor(computed * units).astype(np.int64)
        cuts = np.where((computed < 1) & (finished >= 1), stop, np.inf)
        sends = np.minimum(cuts, trips.received + trips.compute)
        arrives = np.where(finished >= 1, sends + trips.upload, np.inf)
    end = _end(arrives, trips.leaves, needed, limit)
    reports = _first(arrives, needed, end)
    left = np.isinf(arrives) & (trips.leaves <= end)
    missing = np.where(left, Outcome.LEFT, Outcome.LATE)
    outcomes = np.where(reports, np.where(np.isinf(cuts), Outcome.REPORTED, Outcome.PARTIAL), missing)
    stops = np.where(reports, arrives, np.where(left, trips.leaves, end))
    return course(trips, outcomes.astype(np.int8), stops, finished, end, cuts)


def course(trips: Trips, outcomes: Codes, stops: Floats, units: Ids, end: float, cuts: Floats) -> Course:
    """Return a course with the parts of the work that devices did before they stopped.

    Args:
        trips: The planned work.
        outcomes: `[devices]`, the `Outcome` of each device.
        stops: `[devices]`, seconds at which each device is done.
        units: `[devices]`, epochs or steps that each device finishes.
        end: Seconds at which the round ends.
        cuts: `[devices]`, seconds at which a device stops computing to send its update; infinite if it is not
            interrupted.
    """
    sends = np.minimum(trips.received + trips.compute, cuts)
    computes = np.clip(np.minimum(stops, sends) - trips.received, 0.0, trips.compute)
    return Course(
        outcomes=outcomes,
        stops=stops,
        computes=computes,
        uploads=part(stops - sends, trips.upload),
        downloads=part(stops - trips.wait, trips.download),
        units=units,
        end=end,
    )


def _end(arrives: Floats, leaves: Floats, needed: int, limit: float) -> float:
    """Return when the round ends: with the last needed report, at the limit, or when no device is left to wait for."""
    reports = np.sort(arrives[np.isfinite(arrives) & (arrives <= limit)])
    if len(reports) >= needed:
        return float(reports[needed - 1])
    if limit < np.inf and bool(np.any(np.minimum(arrives, leaves) > limit)):
        return float(limit)
    return float(np.max(np.minimum(arrives, leaves), initial=0.0))


def _first(arrives: Floats, needed: int, end: float) -> NDArray[np.bool_]:
    """Return which reports the server accepts: the first `needed` until the end, by time and then by id."""
    order = np.argsort(arrives, kind="stable")[:needed]
    taken = np.zeros(len(arrives), np.bool_)
    taken[order] = True
    return taken & np.isfinite(arrives) & (arrives <= end)
