"""The report's plots as PNG, each in a light and a dark version."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO

import matplotlib
from matplotlib.figure import Figure

from odt_sim.metrics.names import higher_is_better, title_of
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.columns import COSTS, Cost
from odt_sim.report.comparison import Comparison
from odt_sim.report.day_plot import day_of, draw_day
from odt_sim.report.devices_plot import draw_devices, draw_gains, gain_reference
from odt_sim.report.formatting import difference_of
from odt_sim.report.lines_plot import CLOCK, ROUNDS, draw_over
from odt_sim.report.pareto_plot import Point, draw_pareto, fronts, points
from odt_sim.report.style import DARK, DPI, LIGHT, Theme, on_figure


@dataclass(frozen=True)
class Picture:
    """A plot of a report.

    Attributes:
        name: The file's name without `.png`.
        title: Its heading.
        caption: How to read the plot.
        light: The PNG for a light page.
        dark: The PNG for a dark page.
        after: The title of the table that it follows on the page; empty if it follows all tables.
    """

    name: str
    title: str
    caption: str
    light: bytes
    dark: bytes
    after: str = ""


def picture(name: str, title: str, caption: str, draw: Callable[[Figure], None], after: str = "") -> Picture:
    """Return a plot in both themes.

    Args:
        name: The file's name without `.png`.
        title: Its heading.
        caption: How to read the plot.
        draw: Draws the plot on an empty figure.
        after: The title of the table that it follows on the page.
    """
    light, dark = (_png(draw, theme) for theme in (LIGHT, DARK))
    return Picture(name, title, caption, light, dark, after)


def _png(draw: Callable[[Figure], None], theme: Theme) -> bytes:
    with matplotlib.rc_context(theme.settings()):
        figure = Figure(dpi=DPI, layout="constrained")
        draw(figure)
        content = BytesIO()
        figure.savefig(content, format="png")
    return content.getvalue()


def pictures(comparison: Comparison) -> list[Picture]:
    """Return the plots for which the runs have data: the metric by round, by device and by cost, and gains."""
    if not comparison.runs:
        return []
    metric, better = title_of(comparison.metric), "higher" if higher_is_better(comparison.metric) else "lower"
    seeds = any(len(row.runs) > 1 for row in comparison.rows)
    drawn: list[Picture] = []

    def add(name: str, title: str, caption: str, draw: Callable[[Figure], None], spread: str = "") -> None:
        over_seeds = f" {spread} one standard deviation over seeds." if spread and seeds else ""
        drawn.append(picture(name, title, caption + over_seeds, draw))

    mean = f"Mean test {metric} of the seen devices{{}}, weighted by test examples; {better} is better."
    if any(record.get(comparison.metric) is not None for run in comparison.runs for record in run.rounds):
        draw = on_figure(draw_over, comparison, axis=ROUNDS)
        add("rounds", f"Test {metric} by round", mean.format(""), draw, "Bands show")
    if any(run.complete.simulated_seconds is not None for run in comparison.runs):
        caption = mean.format(" at the end of each evaluated round")
        for axis in CLOCK:
            draw = on_figure(draw_over, comparison, axis=axis)
            add(f"by_{axis.key}", f"Test {metric} by {axis.title}", caption, draw, "Bands show")
    unseen = any(not record.seen for run in comparison.runs for record in run.devices)
    add(
        "distribution",
        f"Test {metric} by device",
        f"Each dot is a device; {better} is better."
        f"{' Rings are unseen devices, which took no part in training.' if unseen else ''} For the seen devices, the bar "
        "spans the middle 50 %, the line spans the middle 80 %, and the tick marks the median.",
        on_figure(draw_devices, comparison),
    )
    if reference := gain_reference(comparison):
        model = "its local-only model" if reference == "local" else "the global model"
        add(
            "gain",
            f"Gain of each device over {model}",
            f"Each bar is the gain of a seen device in {difference_of(comparison.metric)}: above zero, the strategy serves "
            f"the device better than {model}; below zero, worse.",
            partial(draw_gains, comparison=comparison),
        )
    for cost in (cost for cost in COSTS if _compares(cost, points(comparison, cost))):
        best = fronts(points(comparison, cost), comparison.metric)
        names = ", ".join(point.row.label for front in best for point in front)
        add(
            f"pareto_{cost.key}",
            f"Test {metric} against {cost.title}",
            f"Each point is a configuration; {better} is better. The line is the Pareto front"
            f"{' for each data set, partition and fleet' if len(best) > 1 else ''}: the configurations that no other beats "
            f"at equal or lower cost ({names or 'none'})."
            f"{' Pruned configurations are excluded.' if comparison.unpruned != comparison.rows else ''}",
            on_figure(draw_pareto, comparison, cost=cost),
            "Error bars show",
        )
    return [*drawn, *_day(comparison)]


def _compares(cost: Cost, drawn: Sequence[Point]) -> bool:
    """Return whether costs differ enough to compare: a simulated week is a week for all strategies."""
    costs = [point.cost.mean for point in drawn]
    return len(costs) > 1 and (cost.key != "hours" or max(costs) - min(costs) > 0.01 * max(costs))


def _day(comparison: Comparison) -> list[Picture]:
    """Return the plot of one day of the first run with a long enough timeline; empty without one."""
    for row in comparison.rows:
        timeline = RunFolder(row.runs[0].path).timeline()
        if (start := day_of(timeline)) is not None:
            caption = (
                f"The {'second' if start else 'first'} simulated day of {row.label}, seed {row.runs[0].complete.seed}. Top: "
                "devices that were eligible when a round began, and devices that were working. Bottom: work of individual "
                "devices, from download to upload, by outcome."
            )
            return [picture("day", "One day of the fleet", caption, partial(draw_day, timeline=timeline))]
    return []
