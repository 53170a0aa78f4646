"""The report's pictures as PNG, each in a light and a dark version."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

import matplotlib
from matplotlib.figure import Figure

from odt_sim.report.comparison import Comparison
from odt_sim.report.distribution_plot import draw_distribution
from odt_sim.report.formatting import metric_name
from odt_sim.report.gain_plot import draw_gains, gain_reference
from odt_sim.report.pareto import COSTS, Cost, fronts, points
from odt_sim.report.pareto_plot import draw_pareto
from odt_sim.report.rounds_plot import draw_rounds
from odt_sim.report.style import DARK, DPI, LIGHT, Theme


@dataclass(frozen=True)
class Picture:
    """A figure of the report.

    Attributes:
        name: The file's name without `.png`.
        title: What it shows.
        caption: How to read it, in one sentence.
        light: The PNG for a light page.
        dark: The PNG for a dark page.
    """

    name: str
    title: str
    caption: str
    light: bytes
    dark: bytes


def pictures(comparison: Comparison) -> list[Picture]:
    """Returns the figures for which the runs have data: the metric by round, by device and by cost, and devices' gains."""
    metric = metric_name(comparison.metric)
    drawn: list[Picture] = []
    if any(comparison.metric in line for run in comparison.runs for line in run.rounds):
        drawn.append(
            _picture("rounds", f"Test {metric} by round", _rounds_caption(comparison), draw_rounds, comparison)
        )
    if comparison.runs:
        title = f"Test {metric} of every device"
        drawn.append(_picture("distribution", title, _distribution_caption(comparison), draw_distribution, comparison))
    if reference := gain_reference(comparison):
        title = f"Gain or loss of every device against the {_model(reference)}"
        drawn.append(_picture("gain", title, _gain_caption(comparison, reference), draw_gains, comparison))
    return [*drawn, *(_pareto(cost, comparison) for cost in COSTS if len(points(comparison, cost)) > 1)]


def _pareto(cost: Cost, comparison: Comparison) -> Picture:
    def draw(figure: Figure, comparison: Comparison) -> None:
        draw_pareto(figure, comparison, cost)

    title = f"Test {metric_name(comparison.metric)} for {cost.title}"
    return _picture(f"pareto_{cost.key}", title, _pareto_caption(cost, comparison), draw, comparison)


def _picture(
    name: str, title: str, caption: str, draw: Callable[[Figure, Comparison], None], comparison: Comparison
) -> Picture:
    light, dark = (_png(draw, comparison, theme) for theme in (LIGHT, DARK))
    return Picture(name, title, caption, light, dark)


def _png(draw: Callable[[Figure, Comparison], None], comparison: Comparison, theme: Theme) -> bytes:
    with matplotlib.rc_context(theme.settings()):
        figure = Figure(dpi=DPI, layout="constrained")
        draw(figure, comparison)
        content = BytesIO()
        figure.savefig(content, format="png")
    return content.getvalue()


def _rounds_caption(comparison: Comparison) -> str:
    several = any(len(row.runs) > 1 for row in comparison.rows)
    band = "; the band is one standard deviation over seeds to either side" if several else ""
    return (
        f"Each line is the mean test {metric_name(comparison.metric)} of the seen devices, weighted by their examples; "
        f"{_direction(comparison)}{band}."
    )


def _distribution_caption(comparison: Comparison) -> str:
    unseen = any(not row["seen"] for run in comparison.runs for row in run.devices)
    rings = ", a ring a device that was kept out of training" if unseen else ""
    return (
        f"Each dot is a device{rings}; the bar spans the middle half of the seen devices, the line the middle 80 %, the "
        f"tick is their median; {_direction(comparison)}."
    )


def _gain_caption(comparison: Comparison, reference: str) -> str:
    how = "percentage points of accuracy" if comparison.metric == "accuracy" else metric_name(comparison.metric)
    return (
        f"Each bar is a seen device, in order of its gain in {how}: above zero the strategy serves it better than the "
        f"{_model(reference)} does, below zero worse."
    )


def _pareto_caption(cost: Cost, comparison: Comparison) -> str:
    best = fronts(points(comparison, cost), comparison.metric)
    several = any(len(row.runs) > 1 for row in comparison.rows)
    bars = "; bars are one standard deviation over seeds to either side" if several else ""
    apart = ", for each data, partition and fleet apart" if len(best) > 1 else ""
    names = ", ".join(point.row.label for front in best for point in front)
    return (
        f"Each point is a configuration, {_direction(comparison)}{bars}. The line is the front{apart}: nothing is better "
        f"than these at their cost or less: {names}."
    )


def _direction(comparison: Comparison) -> str:
    return "higher is better" if comparison.metric == "accuracy" else "lower is better"


def _model(reference: str) -> str:
    return "model that it trains alone" if reference == "local" else "global model"
