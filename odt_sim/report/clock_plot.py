"""The plots of runs on the clock: the fleet's mean over simulated hours and joules, and one day of a fleet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from odt_sim.metrics.units import readable
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run import Run
from odt_sim.persistence.timeline import Outcome, TimelineRecord
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.lines_plot import draw_lines, resize_for_names
from odt_sim.report.style import (
    LOCAL,
    PALETTE,
    WIDE,
    WIDTH,
    Array,
    percent_factor,
)

HOUR = 3600.0
DAY = 24 * HOUR
SLOT = 600.0  # seconds of an interval in which devices are counted
GRID = 200  # points at which the lines of several seeds are averaged
MOST_DEVICES = 60  # maximum rows in the lower part of the day's plot

Spent = Callable[[Sequence[RoundRecord]], Array]
"""Returns the cost that a run has spent by the end of each round, `[rounds]`."""


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a plot of the mean.

    Attributes:
        key: Its name in file names.
        title: Its name in headings.
        label: Its name and unit on the axis; small values get a smaller unit.
        spent: Returns its values for the rounds of a run.
    """

    key: str
    title: str
    label: str
    spent: Spent


def _hours(rounds: Sequence[RoundRecord]) -> Array:
    return np.array([record.simulated_end or 0.0 for record in rounds]) / HOUR


def _kilojoules(rounds: Sequence[RoundRecord]) -> Array:
    return np.cumsum([record.joules or 0.0 for record in rounds]) / 1e3


AXES = (
    Axis("hours", "simulated time", "simulated hours", _hours),
    Axis("joules", "energy", "kJ spent by all devices", _kilojoules),
)

_OUTCOMES = {
    Outcome.REPORTED: ("reported", PALETTE[2]),
    Outcome.PARTIAL: ("partial report", PALETTE[1]),
    Outcome.LATE: ("late", PALETTE[4]),
    Outcome.LEFT: ("dropped out", PALETTE[3]),
    Outcome.STALE: ("stale", PALETTE[5]),
}


def on_clock(comparison: Comparison) -> bool:
    """Return whether a run of the comparison has simulated times."""
    return any(run.complete.simulated_seconds is not None for run in comparison.runs)


def draw_over(figure: Figure, comparison: Comparison, axis: Axis) -> None:
    """Draw the weighted mean of the seen devices' metric over an axis, with a band for several seeds."""
    rows = [row for row in comparison.rows if all(_evaluated(run, comparison.metric) for run in row.runs)]
    resize_for_names(figure, rows)
    axes, grids = figure.add_subplot(), [_on_grid(row, comparison.metric, axis.spent) for row in rows]
    [(label, factor)] = readable([axis.label], [[grid[-1] for grid, _ in grids]])
    axes.set_xlabel(label)
    draw_lines(
        axes, comparison, [(row, factor * grid, values) for row, (grid, values) in zip(rows, grids, strict=True)]
    )


def _evaluated(run: Run, metric: str) -> list[int]:
    """Return the positions of the rounds on the clock that have the metric."""
    known = enumerate(run.rounds)
    return [i for i, record in known if record.get(metric) is not None and record.simulated_end is not None]


def _on_grid(row: Configuration, metric: str, spent: Spent) -> tuple[Array, Array]:
    """Return the spent cost `[points]`, and the linearly interpolated metric `[seeds, points]`."""
    places = [_evaluated(run, metric) for run in row.runs]
    costs = [spent(run.rounds)[own] for run, own in zip(row.runs, places, strict=True)]
    scores = [np.array([run.rounds[i][metric] for i in own]) for run, own in zip(row.runs, places, strict=True)]
    one = len(costs) == 1
    grid = costs[0] if one else np.linspace(max(c[0] for c in costs), min(c[-1] for c in costs), GRID)
    values = [np.interp(grid, cost, score) for cost, score in zip(costs, scores, strict=True)]
    return grid, np.array(values) * percent_factor(metric)


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
