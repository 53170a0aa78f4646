"""The picture of what strategies reach for what they cost: a point a configuration, and the front of the best."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from odt_sim.report.comparison import Comparison
from odt_sim.report.label_places import places
from odt_sim.report.pareto import Cost, Point, fronts, points
from odt_sim.report.style import WIDE, WIDTH, Array, axis_unit, broken, percent_factor, scale_axis, strokes

_DOT = 7.0
"""Of a point, in points of type."""


class _Spot(NamedTuple):
    """A point in data coordinates, with its standard deviations, and how it is named."""

    x: float
    y: float
    wide: float
    high: float
    name: str
    color: str
    on_front: bool


def draw_pareto(figure: Figure, comparison: Comparison, cost: Cost) -> None:
    """Draws the weighted mean of the metric over a cost; bars are one standard deviation over seeds."""
    drawn = points(comparison, cost)
    best = fronts(drawn, comparison.metric)
    spots = _spots(comparison, drawn, {point.row.label for front in best for point in front})
    lines = sum(1 + spot.name.count("\n") for spot in spots)
    figure.set_size_inches(WIDTH, 4.2 + 0.1 * max(0, lines - 8))
    axes = figure.add_subplot()
    steps = [_steps(front, percent_factor(comparison.metric)) for front in best]
    for corners in steps:
        axes.plot(*corners.T, color=axes.xaxis.label.get_color(), linewidth=1, alpha=0.5, zorder=1)
    for spot in spots:
        _draw(axes, spot)
    _scale(axes, spots, comparison.metric)
    axes.set_xlabel(cost.axis)
    axes.set_ylabel(f"test {axis_unit(comparison.metric)}, weighted mean")
    _name(figure, axes, sorted(spots, key=lambda spot: not spot.on_front), steps)


def _spots(comparison: Comparison, drawn: Sequence[Point], on_front: set[str]) -> list[_Spot]:
    styles, factor = strokes(comparison.rows), percent_factor(comparison.metric)
    return [
        _Spot(
            x=point.cost.mean,
            y=factor * point.score.mean,
            wide=point.cost.std or 0.0,
            high=factor * (point.score.std or 0.0),
            name=broken(point.row.label),
            color=styles[point.row.label].color,
            on_front=point.row.label in on_front,
        )
        for point in drawn
    ]


def _steps(front: Sequence[Point], factor: float) -> Array:
    """Returns the corners `[corners, 2]` of what is reached at no more than each cost."""
    ends = [(point.cost.mean, factor * point.score.mean) for point in front]
    between = [[one, (other[0], one[1])] for one, other in pairwise(ends)]
    return np.array([corner for pair in between for corner in pair] + ends[-1:], np.float64)


def _draw(axes: Axes, spot: _Spot) -> None:
    axes.errorbar(
        spot.x,
        spot.y,
        xerr=spot.wide or None,
        yerr=spot.high or None,
        fmt="o",
        markersize=_DOT,
        color=spot.color,
        ecolor=(spot.color, 0.45),
        elinewidth=1.2,
    )


def _scale(axes: Axes, spots: Sequence[_Spot], metric: str) -> None:
    """Makes an axis logarithmic where its values span much; where some cost nothing, it is linear up to the next."""
    axes.margins(x=0.12, y=0.12)
    positive = [spot.x for spot in spots if spot.x > 0]
    if positive and max(positive) > WIDE * min(positive):
        if len(positive) == len(spots):
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=min(positive), linscale=0.5)
    else:
        axes.xaxis.set_major_formatter("{x:,g}")
    if not scale_axis(axes, "y", metric, np.array([spot.y for spot in spots])) and metric == "accuracy":
        axes.set_ylim(top=min(axes.get_ylim()[1], 101.0))  # a bar over 100 % would promise what there is not


def _name(figure: Figure, axes: Axes, spots: Sequence[_Spot], steps: Sequence[Array]) -> None:
    """Names the points where names cover nothing, each joined with its point where it is not beside it."""
    texts = [
        axes.text(0, 0, spot.name, color=spot.color, weight="bold" if spot.on_front else "normal", va="bottom")
        for spot in spots
    ]
    for text in texts:
        text.set_in_layout(False)
    figure.draw_without_rendering()  # settles where the axes are
    pixel = figure.dpi / 72
    centres = axes.transData.transform([(spot.x, spot.y) for spot in spots])
    sizes = np.array([text.get_window_extent().size for text in texts])
    obstacles = np.array([*_bars(axes, spots, _DOT / 2 * pixel), *_segments(axes, steps)])
    boxes = places(centres, sizes, obstacles, axes.get_window_extent().extents, 2 * pixel)
    to_data = axes.transData.inverted()
    for text, centre, box in zip(texts, centres, boxes, strict=True):
        text.set_position(tuple(to_data.transform(box[:2]).tolist()))
        nearest = np.clip(centre, box[:2], box[2:])
        if np.hypot(*(nearest - centre)) > 2 * _DOT * pixel:
            ends = to_data.transform([centre, nearest])
            axes.plot(*ends.T, color=text.get_color(), linewidth=0.8, zorder=1, scalex=False, scaley=False)


def _bars(axes: Axes, spots: Sequence[_Spot], radius: float) -> list[Array]:
    """Returns the boxes, in pixels, of points and of their bars."""
    boxes = []
    for x, y, wide, high, *_ in spots:
        centre = axes.transData.transform((x, y))
        boxes.append(np.concatenate([centre - radius, centre + radius]))
        for low, top in (((x - wide, y), (x + wide, y)), ((x, y - high), (x, y + high))):
            ends = np.concatenate([axes.transData.transform(low), axes.transData.transform(top)])
            boxes.append(np.nan_to_num(ends, nan=0.0, neginf=0.0))  # below zero on a logarithmic axis
    return boxes


def _segments(axes: Axes, steps: Sequence[Array]) -> list[Array]:
    """Returns the boxes, in pixels, of the fronts' lines."""
    corners = [pair for front in steps for pair in pairwise(axes.transData.transform(front))]
    return [np.concatenate([np.minimum(*pair), np.maximum(*pair)]) for pair in corners]
