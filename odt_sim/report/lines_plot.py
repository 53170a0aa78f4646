"""Line plots of configurations, with bands over seeds and names at the lines' ends."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.style import WIDTH, Array, axis_unit, figure_of, scale_axis, strokes, wrap_label

_LINE = 0.21
"""Height of a line of text, in inches."""


class End(NamedTuple):
    """The end of a line, in data coordinates, with its name."""

    x: float
    y: float
    label: str
    color: str


def draw_lines(axes: Axes, comparison: Comparison, lines: Iterable[tuple[Configuration, Array, Array]]) -> None:
    """Draw the mean of the metric over an axis, with a band for several seeds.

    Args:
        axes: The axes to draw on.
        comparison: The comparison.
        lines: Configurations, each with its positions on the axis, `[points]`, and its metric, `[seeds, points]`.
    """
    styles, ends = strokes(comparison.rows), []
    for row, points, values in lines:
        stroke, mean = styles[row.label], values.mean(axis=0)
        marker = "o" if len(points) == 1 else None
        axes.plot(points, mean, color=stroke.color, linestyle=stroke.line, linewidth=2, marker=marker)
        if len(values) > 1:
            std = values.std(axis=0, ddof=1)
            axes.fill_between(points, mean - std, mean + std, color=stroke.color, alpha=0.15, linewidth=0)
        ends.append(End(float(points[-1]), float(mean[-1]), wrap_label(row.label), stroke.color))
    scale_axis(axes, "y", comparison.metric, np.concatenate([line.get_ydata(orig=False) for line in axes.lines]))
    axes.set_ylabel(f"test {axis_unit(comparison.metric)}, weighted mean")
    axes.margins(x=0.01)
    name_ends(axes, ends)


def resize_for_names(figure: Figure, rows: Sequence[Configuration]) -> None:
    """Make a figure tall enough for the names of configurations next to their lines."""
    lines = sum(1 + wrap_label(row.label).count("\n") for row in rows)
    figure.set_size_inches(WIDTH, max(4.2, 1.0 + _LINE * lines))


def name_ends(axes: Axes, ends: Sequence[End]) -> None:
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
