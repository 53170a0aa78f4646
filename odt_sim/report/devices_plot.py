"""The plots of all devices: the distribution of the metric, and the gains over a reference."""

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from odt_sim.metrics.fleet import split_seen
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import difference_unit
from odt_sim.report.gains import known_gains
from odt_sim.report.style import WIDTH, Array, axis_unit, figure_of, percent_factor, scale_axis, strokes, wrap_label


def draw_devices(axes: Axes, comparison: Comparison, *, alone: bool = False) -> None:
    """Draw the devices' test metric over its quartiles and deciles, a row per configuration; unseen devices are rings.

    Args:
        axes: The axes to draw on.
        comparison: The comparison.
        alone: Whether to give the figure a suitable size.
    """
    names = [wrap_label(row.label) for row in comparison.rows]
    if alone:
        height = max(0.85, *(0.3 + 0.2 * name.count("\n") for name in names))
        figure_of(axes).set_size_inches(WIDTH, 0.9 + len(names) * height)
    styles = strokes(comparison.rows)
    fleets = [_values(row, comparison.metric) for row in comparison.rows]
    pooled = np.concatenate([values for fleet in fleets for values in fleet])
    logarithmic = scale_axis(axes, "x", comparison.metric, pooled)
    space = np.geomspace if logarithmic else np.linspace
    edges = space(pooled.min(), pooled.max(), 100) if len(pooled) else np.zeros(1)
    for place, (row, (seen, unseen)) in enumerate(zip(comparison.rows, fleets, strict=True)):
        color = styles[row.label].color
        if len(seen):  # the middle half as a bar, the middle 80 % as a line, and the median as a tick
            low, first, median, third, high = np.quantile(seen, [0.1, 0.25, 0.5, 0.75, 0.9])
            axes.hlines(place, low, high, color=color, linewidth=1.5, alpha=0.6)
            axes.fill_betweenx([place - 0.3, place + 0.3], first, third, color=color, alpha=0.2, linewidth=0)
            axes.vlines(median, place - 0.38, place + 0.38, color=color, linewidth=2.5)
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
    axes.set_xlabel(f"test {axis_unit(comparison.metric)} per device")


def _values(row: Configuration, metric: str) -> tuple[Array, Array]:
    """Return the known values of all seen and of all unseen devices, over all seeds."""
    parts = split_seen([device for run in row.runs for device in run.devices])
    known = [[device[metric] for device in part if device.get(metric) is not None] for part in parts]
    seen, unseen = (np.array(values, np.float64) * percent_factor(metric) for values in known)
    return seen, unseen


def _swarm(values: Array, edges: Array) -> Array:
    """Return a height in -0.4..0.4 for each value: the values in a bin are stacked symmetrically around 0."""
    bins = np.digitize(values, edges)
    counts = np.bincount(bins, minlength=1)
    step = min(0.1, 0.8 / max(int(counts.max()), 1))
    heights = np.zeros(len(values))
    for number in np.unique(bins):
        heights[bins == number] = step * (np.arange(counts[number]) - (counts[number] - 1) / 2)
    return heights


def gain_reference(comparison: Comparison) -> str | None:
    """Return the reference of the gains: `local` if its gains are known for any run, else `global`, else None."""
    for reference in ("local", "global"):
        if any(len(_gains(row, comparison, reference)) for row in comparison.rows):
            return reference
    return None


def draw_gains(figure: Figure, comparison: Comparison) -> None:
    """Draw `gains_on` in a figure of suitable size, a panel per configuration."""
    gained = gains_of(comparison)
    names = [wrap_label(label) for label in gained]
    longest = max(len(line) for name in names for line in name.split("\n"))
    columns = min(3 if longest <= 20 else 2, len(names))
    lines = ceil(len(names) / columns)
    figure.set_size_inches(WIDTH, 0.4 + lines * (2.7 + 0.2 * max(1 + name.count("\n") for name in names)))
    grid = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    gains_on([*grid[: len(names)]], gained, comparison)
    for axes in grid[len(names) :]:
        axes.remove()
    x_label, y_label = gain_labels(comparison)
    figure.supxlabel(x_label, fontsize="medium")
    figure.supylabel(y_label, fontsize="medium")


def gains_on(panels: Sequence[Axes], gained: Mapping[str, Array], comparison: Comparison) -> None:
    """Draw the gains of `gains_of` as sorted bars, on separate axes for each configuration."""
    styles = strokes(comparison.rows)
    for axes, (label, values) in zip(panels, gained.items(), strict=True):
        edges, color = np.linspace(0, 100, len(values) + 1), styles[label].color
        if len(values) <= 60:
            axes.bar((edges[:-1] + edges[1:]) / 2, values, width=80 / len(values), color=color, linewidth=0)
        else:  # bars too thin for gaps
            axes.stairs(values, edges, fill=True, color=color, linewidth=0)
        axes.axhline(0, color=axes.xaxis.label.get_color(), linewidth=1, clip_on=False)
        axes.set_title(wrap_label(label), pad=20, loc="left")
        better, worse = int(np.sum(values > 0)), int(np.sum(values < 0))
        counts = f"{better} better, {len(values) - better - worse} equal, {worse} worse"
        axes.annotate(counts, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize="small")
        axes.set_xlim(0, 100)
        axes.set_xticks([0, 25, 50, 75])
        axes.grid(visible=False, axis="x")


def gains_of(comparison: Comparison) -> dict[str, Array]:
    """Return the known gains of the seen devices, largest first, by the configuration's label."""
    reference = gain_reference(comparison) or "local"
    gained = {row.label: _gains(row, comparison, reference) for row in comparison.rows}
    return {label: values for label, values in gained.items() if len(values)}


def gain_labels(comparison: Comparison) -> tuple[str, str]:
    """Return the labels of the two axes."""
    return "seen devices, sorted by gain (% of devices)", f"gain ({difference_unit(comparison.metric)})"


def _gains(row: Configuration, comparison: Comparison, reference: str) -> Array:
    """Return the gains of the seen devices over all seeds, largest first; empty if unknown."""
    fleets = [split_seen(run.devices)[0] for run in row.runs]
    values = np.concatenate([known_gains(fleet, comparison.metrics, reference) for fleet in fleets])
    return np.sort(values[np.isfinite(values)])[::-1] * percent_factor(comparison.metric)
