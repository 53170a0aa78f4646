"""The plots of the fleet's mean by round, simulated time and energy, with names at the lines' ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from odt_sim.metrics.units import readable
from odt_sim.persistence.records import RoundRecord
from odt_sim.report.columns import HOUR
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.style import WIDTH, Array, axis_unit, figure_of, percent_factor, scale_axis, strokes, wrap_label

_GRID = 200  # points at which the lines of seeds with different positions are averaged
_LINE = 0.21
"""Height of a line of text, in inches."""


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a plot of the mean.

    Attributes:
        key: Its name in file names.
        title: Its name in headings.
        label: Its name and unit on the axis; small values get a smaller unit.
        positions: Returns the position of each round of a run, `[rounds]`; NaN if unknown.
    """

    key: str
    title: str
    label: str
    positions: Callable[[Sequence[RoundRecord]], Array]


def _hours(rounds: Sequence[RoundRecord]) -> Array:
    return np.array([np.nan if end is None else end / HOUR for end in (record.simulated_end for record in rounds)])


def _kilojoules(rounds: Sequence[RoundRecord]) -> Array:
    spent = np.cumsum([record.joules or 0.0 for record in rounds]) / 1e3
    return np.where(np.isnan(_hours(rounds)), np.nan, spent)


ROUNDS = Axis("rounds", "round", "round", lambda rounds: np.array([record.round for record in rounds], np.float64))
CLOCK = (
    Axis("hours", "simulated time", "simulated hours", _hours),
    Axis("joules", "energy", "kJ spent by all devices", _kilojoules),
)


class End(NamedTuple):
    """The end of a line, in data coordinates, with its name."""

    x: float
    y: float
    label: str
    color: str


def draw_over(axes: Axes, comparison: Comparison, axis: Axis, *, alone: bool = False) -> None:
    """Draw the weighted mean of the seen devices' metric over an axis, with a band for several seeds.

    Args:
        axes: The axes to draw on.
        comparison: The comparison.
        axis: The horizontal axis.
        alone: Whether to make the figure tall enough for the names.
    """
    lines = [(row, *curve) for row in comparison.rows if (curve := _curve(row, comparison.metric, axis))]
    if alone:
        names = sum(1 + wrap_label(row.label).count("\n") for row, *_ in lines)
        figure_of(axes).set_size_inches(WIDTH, max(4.2, 1.0 + _LINE * names))
    [(label, factor)] = readable([axis.label], [[positions[-1] for _, positions, _ in lines]])
    axes.set_xlabel(label)
    if axis is ROUNDS:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    styles, ends = strokes(comparison.rows), []
    for row, positions, values in lines:
        points, mean, stroke = factor * positions, values.mean(axis=0), styles[row.label]
        marker = "o" if len(points) == 1 else None
        axes.plot(points, mean, color=stroke.color, linestyle=stroke.line, linewidth=2, marker=marker)
        if len(values) > 1:
            std = values.std(axis=0, ddof=1)
            axes.fill_between(points, mean - std, mean + std, color=stroke.color, alpha=0.15, linewidth=0)
        ends.append(End(float(points[-1]), float(mean[-1]), wrap_label(row.label), stroke.color))
    scale_axis(axes, "y", comparison.metric, np.concatenate([line.get_ydata(orig=False) for line in axes.lines]))
    axes.set_ylabel(f"test {axis_unit(comparison.metric)}, weighted mean")
    axes.margins(x=0.01)
    _name_ends(axes, ends)


def _curve(row: Configuration, metric: str, axis: Axis) -> tuple[Array, Array] | None:
    """Return positions on the axis, `[points]`, and the metric there, `[seeds, points]`; None if a seed has none.

    Seeds with different positions are interpolated linearly where all have values.
    """
    curves = []
    for run in row.runs:
        positions = axis.positions(run.rounds)
        values = np.array([np.nan if (value := line.get(metric)) is None else value for line in run.rounds], np.float64)
        known = ~np.isnan(positions) & ~np.isnan(values)
        curves.append((positions[known], values[known]))
    if not all(len(positions) for positions, _ in curves):
        return None
    grid = curves[0][0]
    if any(not np.array_equal(positions, grid) for positions, _ in curves):
        first = max(positions[0] for positions, _ in curves)
        last = min(positions[-1] for positions, _ in curves)
        if first > last:
            return None
        grid = np.linspace(first, last, _GRID)
    values = np.array([np.interp(grid, *curve) for curve in curves])
    return grid, values * percent_factor(metric)


def _name_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Write the lines' names next to the plot, each at the height of its line's end unless names would overlap."""
    figure = figure_of(axes)
    figure.draw_without_rendering()  # lays out the axes
    in_order = sorted(ends, key=lambda end: end.y)
    to_fraction = axes.transData + axes.transAxes.inverted()
    wanted = [float(to_fraction.transform((end.x, end.y))[1]) for end in in_order]
    line = _LINE * figure.dpi / axes.get_window_extent().height
    places = spread(wanted, [line * (1 + end.label.count("\n")) for end in in_order])
    for end, place in zip(in_order, places, strict=True):
        axes.annotate(
            end.label,
            (end.x, end.y),
            (1.04, place),
            textcoords="axes fraction",
            color=end.color,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": end.color, "linewidth": 0.8, "shrinkB": 0, "relpos": (0, 0.5)},
        )


def spread(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return centres of labels close to the wanted ones, such that labels do not overlap and stay between 0 and 1.

    Overlapping labels form a stack around the mean of their wanted centres. Neighbouring stacks are pooled until none
    overlap (isotonic regression), which is optimal in least squares.

    Args:
        wanted: The centres in ascending order.
        heights: The labels' heights.
    """
    offsets = np.cumsum([0.0, *((a + b) / 2 for a, b in pairwise(heights))])
    stacks: list[tuple[float, int]] = []  # the mean wanted foot and the size of each stack
    for foot in np.asarray(wanted) - offsets:
        mean, size = float(foot), 1
        while stacks and stacks[-1][0] > mean:
            below, count = stacks.pop()
            mean, size = (below * count + mean * size) / (count + size), count + size
        stacks.append((mean, size))
    lowest, highest = heights[0] / 2, 1 - heights[-1] / 2 - float(offsets[-1])
    feet = [max(min(mean, highest), lowest) for mean, size in stacks for _ in range(size)]
    return [foot + float(offset) for foot, offset in zip(feet, offsets, strict=True)]
