"""The plot of quality over cost: a point per configuration, and the Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from odt_sim.metrics.names import higher_is_better, is_percent
from odt_sim.metrics.units import readable
from odt_sim.report.columns import Cost
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import Spread, over_seeds
from odt_sim.report.run_settings import data_key
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

_DIRECTIONS = 16
"""The directions from a point in which its name may be."""


@dataclass(frozen=True)
class Point:
    """A configuration with its cost and the weighted mean of the first metric over the seen devices."""

    row: Configuration
    cost: Spread
    score: Spread


def points(comparison: Comparison, cost: Cost) -> list[Point]:
    """Return the configurations with a known cost and score."""
    drawn = []
    for row in comparison.rows:
        spent, score = over_seeds([cost.of_run(run) for run in row.runs]), row.values["weighted_mean"]
        if spent and score:
            drawn.append(Point(row, spent, score))
    return drawn


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

    def losses(point: Point) -> tuple[float, float]:
        return point.cost.mean, -sign * point.score.mean

    def dominates(point: Point, other: Point) -> bool:
        (cost, loss), (other_cost, other_loss) = losses(point), losses(other)
        return losses(point) != losses(other) and cost <= other_cost and loss <= other_loss

    return [
        sorted((point for point in group if not any(dominates(other, point) for other in group)), key=losses)
        for group in groups.values()
    ]


def draw_pareto(axes: Axes, comparison: Comparison, cost: Cost, *, alone: bool = False) -> None:
    """Draw the weighted mean of the metric over a cost; bars are one standard deviation over seeds.

    Args:
        axes: The axes to draw on.
        comparison: The comparison.
        cost: The cost.
        alone: Whether to give the figure a suitable size.
    """
    priced = points(comparison, cost)
    [(label, unit)] = readable([cost.axis], [[point.cost.mean for point in priced]])
    drawn = [replace(point, cost=point.cost.times(unit)) for point in priced]
    names = [wrap_label(point.row.label) + ("\n(pruned)" if point.row.pruned else "") for point in drawn]
    if alone:
        height = 4.2 + 0.2 * max(0, sum(1 + name.count("\n") for name in names) - 8)
        figure_of(axes).set_size_inches(WIDTH, height)
    factor, best = percent_factor(comparison.metric), fronts(drawn, comparison.metric)
    for front in best:
        xs, ys = zip(*((point.cost.mean, factor * point.score.mean) for point in front), strict=True)
        axes.step(xs, ys, where="post", color=axes.xaxis.label.get_color(), linewidth=1, alpha=0.5, zorder=1)
    styles = strokes(comparison.rows)
    colors = [styles[point.row.label].color for point in drawn]
    for point, color in zip(drawn, colors, strict=True):
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
    _scale(axes, drawn, comparison.metric)
    axes.set_xlabel(label)
    axes.set_ylabel(f"test {axis_unit(comparison.metric)}, weighted mean")
    on_front = {id(point) for front in best for point in front}
    weights = ["bold" if id(point) in on_front else "normal" for point in drawn]
    _draw_names(axes, [(p.cost.mean, factor * p.score.mean) for p in drawn], names, colors, weights)


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
    """Draw each name at the nearest place to its point, inside the axes, that covers no point and no other name."""
    figure = figure_of(axes)
    figure.draw_without_rendering()  # lays out the axes
    pixels = figure.dpi / 72
    area = axes.get_window_extent()
    centres = axes.transData.transform(places)
    taken = [Bbox([at - _DOT * pixels, at + _DOT * pixels]) for at in centres]
    arrow = {"arrowstyle": "-", "color": axes.xaxis.label.get_color(), "linewidth": 0.6, "alpha": 0.6}
    for place, at, name, color, weight in zip(places, centres, names, colors, weights, strict=True):
        text = axes.annotate(
            name,
            place,
            (0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            color=color,
            weight=weight,
            in_layout=False,
            arrowprops=arrow | {"shrinkA": 0, "shrinkB": _DOT / 2},
        )
        half = np.array(Text.get_window_extent(text).size) / 2
        offsets = _offsets(half + (_DOT + 1) * pixels)
        boxes = [Bbox([at + offset - half, at + offset + half]) for offset in offsets]
        free = (
            number
            for number, box in enumerate(boxes)
            if np.all(box.min >= area.min) and np.all(box.max <= area.max) and not box.count_overlaps(taken)
        )
        chosen = next(free, 0)
        text.set_position(offsets[chosen] / pixels)
        assert text.arrow_patch is not None
        text.arrow_patch.set_visible(chosen >= _DIRECTIONS or chosen % 4 > 0)  # unless the point is next to the name
        taken.append(boxes[chosen])


def _offsets(distance: Array) -> Array:
    """Return the offsets of a name's centre to try, `[places, 2]`: around the point, on rectangles of growing size."""
    angles = np.pi - np.linspace(0, 2 * np.pi, _DIRECTIONS, endpoint=False)  # left first: the front comes from below
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    square = circle / np.abs(circle).max(axis=1, keepdims=True)  # so that a name may touch its point
    return np.concatenate([square * distance * scale for scale in np.arange(1.0, 12.0, 0.5)])
