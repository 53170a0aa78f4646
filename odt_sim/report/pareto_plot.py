"""The plot of quality over cost: a point per configuration, and the Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from odt_sim.metrics.names import higher_is_better, is_percent
from odt_sim.metrics.units import readable
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.costs import Cost
from odt_sim.report.data_settings import data_key
from odt_sim.report.formatting import Spread, over_seeds
from odt_sim.report.style import (
    WIDE,
    WIDTH,
    Array,
    axis_unit,
    figure_of,
    make_logarithmic,
    percent_factor,
    scale_axis,
    strokes,
    wrap_label,
)

_DOT = 7.0
"""Diameter of a point, in typographic points."""


@dataclass(frozen=True)
class Point:
    """A configuration with its cost and the weighted mean of the first metric over the seen devices."""

    row: Configuration
    cost: Spread
    score: Spread


def points(comparison: Comparison, cost: Cost) -> list[Point]:
    """Return the configurations with a known cost and score."""
    known = []
    for row in comparison.rows:
        spent, score = over_seeds([cost.of_run(run) for run in row.runs]), row.values["weighted_mean"]
        if spent and score:
            known.append(Point(row, spent, score))
    return known


def fronts(drawn: Sequence[Point], metric: str) -> list[list[Point]]:
    """Return the Pareto front for each data set, by ascending cost.

    A point is on the front if no other point with the same data is at least as good in both score and cost, and better
    in one. Configurations that a search's pruner ended are left out: they are cheap because they did not run to their
    end.
    """
    groups: dict[object, list[Point]] = {}
    for point in (point for point in drawn if not point.row.pruned):
        groups.setdefault(data_key(point.row.runs[0]), []).append(point)
    sign = 1 if higher_is_better(metric) else -1
    return [
        sorted(
            (point for point in group if not any(_dominates(other, point, sign) for other in group)),
            key=lambda point: (point.cost.mean, sign * point.score.mean),
        )
        for group in groups.values()
    ]


def _dominates(point: Point, other: Point, sign: int) -> bool:
    mine, theirs = ((each.cost.mean, -sign * each.score.mean) for each in (point, other))
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


def draw_pareto(figure: Figure, comparison: Comparison, cost: Cost) -> None:
    """Draw `pareto_on` in a figure of suitable size."""
    names = [_name(point.row) for point in points(comparison, cost)]
    figure.set_size_inches(WIDTH, 4.2 + 0.2 * max(0, sum(1 + name.count("\n") for name in names) - 8))
    pareto_on(figure.add_subplot(), comparison, cost)


def pareto_on(axes: Axes, comparison: Comparison, cost: Cost) -> None:
    """Draw the weighted mean of the metric over a cost; bars are one standard deviation over seeds."""
    (label, drawn), factor = _in_suited_unit(cost, points(comparison, cost)), percent_factor(comparison.metric)
    best = fronts(drawn, comparison.metric)
    names = [_name(point.row) for point in drawn]
    for front in best:
        axes.plot(*_steps(front, factor).T, color=axes.xaxis.label.get_color(), linewidth=1, alpha=0.5, zorder=1)
    styles = strokes(comparison.rows)
    colors = [styles[point.row.label].color for point in drawn]
    for point, color in zip(drawn, colors, strict=True):
        _draw_point(axes, point, factor, color)
    _scale(axes, drawn, comparison.metric)
    axes.set_xlabel(label)
    axes.set_ylabel(f"test {axis_unit(comparison.metric)}, weighted mean")
    on_front = {id(point) for front in best for point in front}
    weights = ["bold" if id(point) in on_front else "normal" for point in drawn]
    _draw_names(axes, [(p.cost.mean, factor * p.score.mean) for p in drawn], names, colors, weights)


def _name(row: Configuration) -> str:
    return wrap_label(row.label) + ("\n(pruned)" if row.pruned else "")


def _in_suited_unit(cost: Cost, known: Sequence[Point]) -> tuple[str, list[Point]]:
    """Return the axis label, and the points in the unit that suits the largest cost."""
    [(label, factor)] = readable([cost.axis], [[point.cost.mean for point in known]])
    return label, [replace(point, cost=point.cost.times(factor)) for point in known]


def _steps(front: Sequence[Point], factor: float) -> Array:
    """Return the corners, `[corners, 2]`, of the step line of the best score at each cost."""
    ends = [(point.cost.mean, factor * point.score.mean) for point in front]
    between = [[left, (right[0], left[1])] for left, right in pairwise(ends)]
    return np.array([corner for pair in between for corner in pair] + ends[-1:], np.float64)


def _draw_point(axes: Axes, point: Point, factor: float, color: str) -> None:
    axes.errorbar(
        point.cost.mean,
        factor * point.score.mean,
        xerr=point.cost.std or None,
        yerr=factor * (point.score.std or 0.0) or None,
        fmt="o",
        markersize=_DOT,
        color=color,
        ecolor=(color, 0.45),
        elinewidth=1.2,
    )


def _scale(axes: Axes, drawn: Sequence[Point], metric: str) -> None:
    """Make axes of widely spread values logarithmic; with costs of zero, the axis is linear up to the next cost."""
    axes.margins(x=0.12, y=0.12)
    positive = [point.cost.mean for point in drawn if point.cost.mean > 0]
    if positive and max(positive) > WIDE * min(positive):
        if len(positive) == len(drawn):
            make_logarithmic(axes, "x")
        else:
            axes.set_xscale("symlog", linthresh=min(positive), linscale=0.5)
            axes.xaxis.set_major_formatter("{x:,g}")
    else:
        axes.xaxis.set_major_formatter("{x:,g}")
    if not scale_axis(axes, "y", metric, np.array([point.score.mean for point in drawn])) and is_percent(metric):
        axes.set_ylim(top=min(axes.get_ylim()[1], 101.0))  # no fraction is above 100 %


def _draw_names(
    axes: Axes,
    places: Sequence[tuple[float, float]],
    names: Sequence[str],
    colors: Sequence[str],
    weights: Sequence[str],
) -> None:
    """Draw the names next to their points, without overlaps between names and points."""
    from adjustText import adjust_text  # takes half a second to import

    figure_of(axes).draw_without_rendering()  # lays out the axes
    texts = [
        axes.text(x, y, name, color=color, weight=weight, in_layout=False)
        for (x, y), name, color, weight in zip(places, names, colors, weights, strict=True)
    ]
    x, y = np.transpose(places)
    adjust_text(
        texts,
        x=x,
        y=y,
        ax=axes,
        iter_lim=2000,  # a time limit would make the plot depend on the machine
        expand=(1.15, 1.5),
        force_text=(0.5, 1.0),
        force_static=(0.3, 0.5),
        max_move=(60, 60),
        min_arrow_len=8,
        arrowprops={"arrowstyle": "-", "color": axes.xaxis.label.get_color(), "linewidth": 0.6, "alpha": 0.6},
    )
    for text in texts:
        keep_inside(axes, text)


def keep_inside(axes: Axes, text: Text) -> None:
    """Move a text that extends beyond the left or right edge of the figure."""
    drawn, width = text.get_window_extent(), figure_of(axes).bbox.x1
    beyond = max(drawn.x1 - width, 0.0) + min(drawn.x0, 0.0)
    if beyond:
        x, y = axes.transData.transform(text.get_position())
        text.set_x(axes.transData.inverted().transform((x - beyond, y))[0])
