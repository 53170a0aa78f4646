"""The report's plots as PNG, each in a light and a dark version."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO

import matplotlib
from matplotlib.figure import Figure

from odt_sim.metrics.names import higher_is_better, title_of
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.clock_plot import AXES, Axis, day_of, draw_day, draw_over, on_clock
from odt_sim.report.comparison import Comparison
from odt_sim.report.costs import COSTS, Cost
from odt_sim.report.devices_plot import draw_distribution, draw_gains, gain_reference
from odt_sim.report.formatting import difference_of
from odt_sim.report.pareto_plot import Point, draw_pareto, fronts, points
from odt_sim.report.rounds_plot import draw_rounds
from odt_sim.report.style import DARK, DPI, LIGHT, Theme

Draw = Callable[[Figure, Comparison], None]


@dataclass(frozen=True)
class Picture:
    """A plot of the report.

    Attributes:
        name: The file's name without `.png`.
        title: Its heading.
        caption: How to read the plot.
        light: The PNG for a light page.
        dark: The PNG for a dark page.
    """

    name: str
    title: str
    caption: str
    light: bytes
    dark: bytes


def pictures(comparison: Comparison) -> list[Picture]:
    """Return the plots for which the runs have data: the metric by round, by device and by cost, and gains."""
    metric = title_of(comparison.metric)
    drawn: list[Picture] = []
    if any(record.get(comparison.metric) is not None for run in comparison.runs for record in run.rounds):
        drawn.append(
            _picture("rounds", f"Test {metric} by round", _rounds_caption(comparison), draw_rounds, comparison)
        )
    if on_clock(comparison):
        drawn += [_over(axis, comparison) for axis in AXES]
    if comparison.runs:
        title = f"Test {metric} by device"
        drawn.append(_picture("distribution", title, _distribution_caption(comparison), draw_distribution, comparison))
    if reference := gain_reference(comparison):
        title = f"Gain of each device over {_model(reference)}"
        drawn.append(_picture("gain", title, _gain_caption(comparison, reference), draw_gains, comparison))
    drawn += [_pareto(cost, comparison) for cost in COSTS if _compares(cost, points(comparison, cost))]
    return [*drawn, *_day(comparison)]


def _compares(cost: Cost, drawn: Sequence[Point]) -> bool:
    """Return whether costs differ enough to compare: a simulated week is a week for all strategies."""
    costs = [point.cost.mean for point in drawn]
    return len(costs) > 1 and (cost.key != "hours" or max(costs) - min(costs) > 0.01 * max(costs))


def _over(axis: Axis, comparison: Comparison) -> Picture:
    metric = title_of(comparison.metric)
    caption = (
        f"Mean test {metric} of the seen devices at the end of each evaluated round, weighted by test examples; "
        f"{_direction(comparison)}.{_several_seeds(comparison, 'Bands show')}"
    )
    draw = partial(draw_over, axis=axis)
    return _picture(f"by_{axis.key}", f"Test {metric} by {axis.title}", caption, draw, comparison)


def _day(comparison: Comparison) -> list[Picture]:
    """Return the plot of one day of the first run with a long enough timeline; empty without one."""
    for row in comparison.rows:
        timeline = RunFolder(row.runs[0].path).timeline()
        if (start := day_of(timeline)) is not None:
            day = "second" if start else "first"
            caption = (
                f"The {day} simulated day of {row.label}, seed {row.runs[0].complete.seed}. Top: devices that were "
                "eligible when a round began, and devices that were working. Bottom: work of individual devices, from "
                "download to upload, by outcome."
            )
            draw = lambda figure, _, timeline=timeline: draw_day(figure, timeline)  # noqa: E731
            return [_picture("day", "One day of the fleet", caption, draw, comparison)]
    return []


def _pareto(cost: Cost, comparison: Comparison) -> Picture:
    title = f"Test {title_of(comparison.metric)} against {cost.title}"
    draw = partial(draw_pareto, cost=cost)
    return _picture(f"pareto_{cost.key}", title, _pareto_caption(cost, comparison), draw, comparison)


def _picture(name: str, title: str, caption: str, draw: Draw, comparison: Comparison) -> Picture:
    return picture(name, title, caption, lambda figure: draw(figure, comparison))


def picture(name: str, title: str, caption: str, draw: Callable[[Figure], None]) -> Picture:
    """Return a plot in both themes.

    Args:
        name: The file's name without `.png`.
        title: Its heading.
        caption: How to read the plot.
        draw: Draws the plot on an empty figure.
    """
    light, dark = (_png(draw, theme) for theme in (LIGHT, DARK))
    return Picture(name, title, caption, light, dark)


def _png(draw: Callable[[Figure], None], theme: Theme) -> bytes:
    with matplotlib.rc_context(theme.settings()):
        figure = Figure(dpi=DPI, layout="constrained")
        draw(figure)
        content = BytesIO()
        figure.savefig(content, format="png")
    return content.getvalue()


def _rounds_caption(comparison: Comparison) -> str:
    return (
        f"Mean test {title_of(comparison.metric)} of the seen devices, weighted by test examples; "
        f"{_direction(comparison)}.{_several_seeds(comparison, 'Bands show')}"
    )


def _distribution_caption(comparison: Comparison) -> str:
    unseen = any(not record.seen for run in comparison.runs for record in run.devices)
    rings = " Rings are unseen devices, which took no part in training." if unseen else ""
    return (
        f"Each dot is a device; {_direction(comparison)}.{rings} For the seen devices, the bar spans the middle 50 %, the "
        "line spans the middle 80 %, and the tick marks the median."
    )


def _gain_caption(comparison: Comparison, reference: str) -> str:
    return (
        f"Each bar is the gain of a seen device in {difference_of(comparison.metric)}: above zero, the strategy serves the "
        f"device better than {_model(reference)}; below zero, worse."
    )


def _pareto_caption(cost: Cost, comparison: Comparison) -> str:
    best = fronts(points(comparison, cost), comparison.metric)
    each = " for each data set, partition and fleet" if len(best) > 1 else ""
    names = ", ".join(point.row.label for front in best for point in front)
    left_out = " Pruned configurations are excluded." if comparison.unpruned != comparison.rows else ""
    return (
        f"Each point is a configuration; {_direction(comparison)}. The line is the Pareto front{each}: the "
        f"configurations that no other beats at equal or lower cost ({names or 'none'}).{left_out}"
        f"{_several_seeds(comparison, 'Error bars show')}"
    )


def _several_seeds(comparison: Comparison, subject: str) -> str:
    several = any(len(row.runs) > 1 for row in comparison.rows)
    return f" {subject} one standard deviation over seeds." if several else ""


def _direction(comparison: Comparison) -> str:
    return "higher is better" if higher_is_better(comparison.metric) else "lower is better"


def _model(reference: str) -> str:
    return "its local-only model" if reference == "local" else "the global model"
