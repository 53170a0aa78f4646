"""The picture of who wins and who pays: what each device gains over the model it would have had otherwise."""

from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from odt_sim.metrics.fleet import split_seen
from odt_sim.report.baseline import known_gains
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import metric_name
from odt_sim.report.style import WIDTH, Array, broken, percent_factor, strokes


def gain_reference(comparison: Comparison) -> str | None:
    """Returns what devices are compared with: `local` where that is known of some run, else `global`, else None."""
    for reference in ("local", "global"):
        if any(len(gains_of(row, comparison, reference)) for row in comparison.rows):
            return reference
    return None


def gains_of(row: Configuration, comparison: Comparison, reference: str) -> Array:
    """Returns what the seen devices gain over the reference, over all seeds, largest first; empty where not known."""
    fleets = [split_seen(run.devices)[0] for run in row.runs]
    values = np.concatenate([known_gains(fleet, comparison.metrics, reference) for fleet in fleets])
    return np.sort(values[np.isfinite(values)])[::-1] * percent_factor(comparison.metric)


def draw_gains(figure: Figure, comparison: Comparison) -> None:
    """Draws what every seen device gains over the reference as sorted bars, a panel a configuration."""
    reference = gain_reference(comparison) or "local"
    gained = [(row.label, gains_of(row, comparison, reference)) for row in comparison.rows]
    panels = [(label, values) for label, values in gained if len(values)]
    names = [broken(label) for label, _ in panels]
    longest = max(len(line) for name in names for line in name.split("\n"))
    columns = min(3 if longest <= 20 else 2, len(panels))
    lines = ceil(len(panels) / columns)
    figure.set_size_inches(WIDTH, 0.4 + lines * (2.7 + 0.2 * max(1 + name.count("\n") for name in names)))
    grid = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    styles = strokes(comparison.rows)
    for axes, name, (label, values) in zip(grid, names, panels, strict=False):
        _draw_panel(axes, name, values, styles[label].color)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel("seen devices, from the largest gain to the largest loss (%)", fontsize="medium")
    unit = "percentage points" if comparison.metric == "accuracy" else metric_name(comparison.metric)
    figure.supylabel(f"gain ({unit})", fontsize="medium")


def _draw_panel(axes: Axes, name: str, values: Array, color: str) -> None:
    edges = np.linspace(0, 100, len(values) + 1)
    if len(values) <= 60:
        axes.bar((edges[:-1] + edges[1:]) / 2, values, width=80 / len(values), color=color, linewidth=0)
    else:  # too thin for gaps between them
        axes.stairs(values, edges, fill=True, color=color, linewidth=0)
    axes.axhline(0, color=axes.xaxis.label.get_color(), linewidth=1, clip_on=False)
    axes.set_title(name, pad=20)
    better, worse = int(np.sum(values > 0)), int(np.sum(values < 0))
    counts = f"{better} better, {len(values) - better - worse} equal, {worse} worse"
    axes.annotate(counts, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize="small")
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 25, 50, 75])
    axes.grid(visible=False, axis="x")
