"""The plot of one simulated day of a fleet."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from odt_sim.persistence.timeline import Outcome, TimelineRecord
from odt_sim.report.columns import HOUR
from odt_sim.report.style import LOCAL, PALETTE, WIDE, WIDTH, Array

DAY = 24 * HOUR
SLOT = 600.0  # seconds of an interval in which devices are counted
MOST_DEVICES = 60  # maximum rows in the lower part of the plot

_OUTCOMES = {
    Outcome.REPORTED: ("reported", PALETTE[2]),
    Outcome.PARTIAL: ("partial report", PALETTE[1]),
    Outcome.LATE: ("late", PALETTE[4]),
    Outcome.LEFT: ("dropped out", PALETTE[3]),
    Outcome.STALE: ("stale", PALETTE[5]),
}


def day_of(timeline: Sequence[TimelineRecord]) -> float | None:
    """Return the simulated second at which the drawn day begins: the second day if the run has one, else the first.

    Returns:
        None for a run of less than an hour, whose plot would be almost empty.
    """
    end = max((line.end for line in timeline), default=0.0)
    if end < HOUR:
        return None
    return DAY if end >= 2 * DAY else 0.0


def draw_day(figure: Figure, timeline: Sequence[TimelineRecord]) -> None:
    """Draw one day of a fleet: the numbers of selectable and working devices, and the work of single devices."""
    start = day_of(timeline) or 0.0
    figure.set_size_inches(WIDTH, 6.4)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    _draw_counts(upper, timeline, start)
    _draw_devices(lower, timeline, start)
    lower.set_xlim(0, 24)
    lower.set_xticks(range(0, 25, 3))
    lower.set_xlabel("hour of the simulated day (UTC)")


def _draw_counts(axes: Axes, timeline: Sequence[TimelineRecord], start: float) -> None:
    begins, stops, _, _ = _intervals(timeline, start)
    times = start + np.arange(0, DAY + 1, SLOT)
    working = [np.count_nonzero((begins < time + SLOT) & (time < stops)) for time in times]
    known = [(line.start, line.eligible) for line in timeline if line.eligible is not None]
    at, eligible = np.array(known or [(-1.0, 0)], np.float64).T
    inside = (at >= start) & (at <= start + DAY)
    if inside.any():
        axes.plot((at[inside] - start) / HOUR, eligible[inside], color=LOCAL, linewidth=2, label="eligible")
    hours, label = (times - start) / HOUR, "working (per 10 minutes)"
    axes.fill_between(hours, working, color=PALETTE[0], alpha=0.35, linewidth=0, label=label, step="post")
    if max(eligible[inside], default=0) > WIDE * max(working):
        axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("devices")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)


def _draw_devices(axes: Axes, timeline: Sequence[TimelineRecord], start: float) -> None:
    begins, stops, devices, outcomes = _intervals(timeline, start)
    ids = np.unique(devices)
    shown = ids[np.linspace(0, len(ids) - 1, min(len(ids), MOST_DEVICES)).astype(int)] if len(ids) else ids
    for outcome, (_, color) in _OUTCOMES.items():
        rows = np.flatnonzero((outcomes == outcome) & np.isin(devices, shown))
        places = np.searchsorted(shown, devices[rows])
        left = (begins[rows] - start) / HOUR
        width = np.maximum((stops[rows] - begins[rows]) / HOUR, 0.08)  # short work stays visible
        axes.barh(places, width, left=left, height=0.8, color=color)
    axes.set_ylabel(f"{len(shown)} of {len(ids)} participating devices")
    axes.set_yticks([])
    drawn = [name for outcome, name in _OUTCOMES.items() if np.any(outcomes == outcome)]
    handles = [Line2D([], [], color=color, linewidth=6, label=name) for name, color in drawn]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=5, frameon=False)


def _intervals(timeline: Sequence[TimelineRecord], start: float) -> tuple[Array, ...]:
    """Return begin, end, device and outcome of each piece of work that overlaps with a day."""
    columns = [
        [value for line in timeline for value in line[name]] for name in ("begins", "stops", "devices", "outcomes")
    ]
    begins, stops, devices, outcomes = (np.array(column) for column in columns)
    inside = (stops > start) & (begins < start + DAY)
    return begins[inside], stops[inside], devices[inside], outcomes[inside]
