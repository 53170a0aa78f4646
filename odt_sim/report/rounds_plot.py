"""The plot of the fleet's mean by round, with a line per configuration."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.lines_plot import draw_lines, resize_for_names
from odt_sim.report.style import Array, percent_factor


def draw_rounds(figure: Figure, comparison: Comparison) -> None:
    """Draw `rounds_on` in a figure of suitable size."""
    resize_for_names(figure, comparison.rows)
    rounds_on(figure.add_subplot(), comparison)


def rounds_on(axes: Axes, comparison: Comparison) -> None:
    """Draw the weighted mean of the seen devices' metric by round, with a band for several seeds."""
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    lines = [(row, *_by_round(row, comparison.metric)) for row in comparison.rows]
    draw_lines(axes, comparison, [line for line in lines if len(line[1])])


def _by_round(row: Configuration, metric: str) -> tuple[Array, Array]:
    """Return the rounds that all seeds evaluated, `[rounds]`, and the metric, `[seeds, rounds]`."""
    curves = [{line["round"]: line[metric] for line in run.rounds if line.get(metric) is not None} for run in row.runs]
    rounds = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = np.array([[curve[number] for number in rounds] for curve in curves], np.float64)
    return np.array(rounds, np.float64), values * percent_factor(metric)
