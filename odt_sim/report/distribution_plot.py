"""The picture of fairness: every device a dot, a row a configuration."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from odt_sim.metrics.fleet import split_seen
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.style import WIDTH, Array, axis_unit, broken, percent_factor, scale_axis, strokes


def draw_distribution(figure: Figure, comparison: Comparison) -> None:
    """Draws the devices' test metric over its quartiles and deciles; unseen devices are rings."""
    names = [broken(row.label) for row in comparison.rows]
    figure.set_size_inches(WIDTH, 0.9 + len(names) * max(0.85, *(0.3 + 0.2 * name.count("\n") for name in names)))
    axes = figure.add_subplot()
    styles = strokes(comparison.rows)
    fleets = [_values(row, comparison.metric) for row in comparison.rows]
    everything = np.concatenate([values for fleet in fleets for values in fleet])
    logarithmic = scale_axis(axes, "x", comparison.metric, everything)
    edges = _bin_edges(everything, logarithmic)
    for place, (row, (seen, unseen)) in enumerate(zip(comparison.rows, fleets, strict=True)):
        color = styles[row.label].color
        _summarize(axes, place, seen, color)
        heights = place + _swarm(np.concatenate([seen, unseen]), edges)
        size = float(np.clip(3000 / max(len(heights), 1), 8, 28))
        axes.scatter(seen, heights[: len(seen)], s=size, color=color, alpha=0.75, linewidths=0, zorder=3)
        axes.scatter(
            unseen, heights[len(seen) :], s=size, facecolors="none", edgecolors=color, linewidths=size / 28, zorder=3
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"test {axis_unit(comparison.metric)} of a device")


def _values(row: Configuration, metric: str) -> tuple[Array, Array]:
    """Returns the known values of all seen and of all unseen devices, over all seeds."""
    parts = split_seen([device for run in row.runs for device in run.devices])
    known = [[device[metric] for device in part if device.get(metric) is not None] for part in parts]
    seen, unseen = (np.array(values, np.float64) * percent_factor(metric) for values in known)
    return seen, unseen


def _summarize(axes: Axes, place: float, values: Array, color: str) -> None:
    """Draws the middle half of the values as a bar, the middle 80 % as a line, and the median as a tick."""
    if not len(values):
        return
    low, first, median, third, high = np.quantile(values, [0.1, 0.25, 0.5, 0.75, 0.9])
    axes.hlines(place, low, high, color=color, linewidth=1.5, alpha=0.6)
    axes.fill_betweenx([place - 0.3, place + 0.3], first, third, color=color, alpha=0.2, linewidth=0)
    axes.vlines(median, place - 0.38, place + 0.38, color=color, linewidth=2.5)


def _bin_edges(values: Array, logarithmic: bool) -> Array:
    if not len(values):
        return np.zeros(1)
    space = np.geomspace if logarithmic else np.linspace
    return np.asarray(space(values.min(), values.max(), 100), np.float64)


def _swarm(values: Array, edges: Array) -> Array:
    """Returns for each value a height within -0.4..0.4: those of one bin are stacked symmetrically around 0."""
    bins = np.digitize(values, edges)
    counts = np.bincount(bins, minlength=1)
    step = min(0.1, 0.8 / max(int(counts.max()), 1))
    heights = np.zeros(len(values))
    for number in np.unique(bins):
        heights[bins == number] = step * (np.arange(counts[number]) - (counts[number] - 1) / 2)
    return heights
