"""The report's plots for notebooks and papers: each function draws runs and returns matplotlib axes.

    runs = odt_sim.Results.load("multirun/first")
    axes = odt_sim.plot.rounds(runs)
    axes.figure.savefig("rounds.pdf")

Without axes, a function creates a new figure in the report's style. With axes, it draws on them, in their style; a
figure with `layout="constrained"` leaves room for the names next to the lines.

matplotlib is imported by the first plot, not together with this module.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from odt_sim.errors import ConfigurationError
from odt_sim.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from odt_sim.report.comparison import Comparison

Folder = str | os.PathLike[str]
Runs = Union[Results, "Comparison", Folder, Iterable[Folder]]
"""Runs to draw: results, a comparison, a folder that contains runs, or several folders."""


def rounds(runs: Runs, ax: "Axes | None" = None) -> "Axes":
    """Draw the weighted mean of the metric over the seen devices by round, a line per configuration with a band over seeds.

    Args:
        runs: The runs to draw.
        ax: The axes to draw on; None for a new figure.

    Returns:
        The axes, with a line per configuration in the order of the comparison.

    Raises:
        ConfigurationError: No evaluated round has a value of the metric.
    """
    from odt_sim.report.lines_plot import ROUNDS, draw_over

    comparison = _comparison(runs)
    if not any(record.get(comparison.metric) is not None for run in comparison.runs for record in run.rounds):
        raise ConfigurationError(
            f"odt_sim.plot.rounds: no evaluated round has a value of {comparison.metric}, which may be undefined on "
            "the test examples; choose other runs, or run them with another run.metric"
        )
    return _drawn(draw_over, comparison, ax, axis=ROUNDS)


def devices(runs: Runs, ax: "Axes | None" = None) -> "Axes":
    """Draw every device's test metric as a dot, or a ring if unseen, over quartiles and deciles: a row per configuration.

    Args:
        runs: The runs to draw.
        ax: The axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: No run is complete.
    """
    from odt_sim.report.devices_plot import draw_devices

    return _drawn(draw_devices, _comparison(runs), ax)


def gains(runs: Runs, ax: "Axes | Iterable[Axes] | None" = None) -> "list[Axes]":
    """Draw the gain of each seen device over its local-only model, or else over the global model, as sorted bars.

    Args:
        runs: The runs to draw.
        ax: Axes for each configuration with a known gain, or single axes for one configuration; None for a new figure.

    Returns:
        The axes of each configuration with a known gain; the baseline itself has none.

    Raises:
        ConfigurationError: No gain is known, or the number of axes differs.
    """
    from odt_sim.report.devices_plot import draw_gains, gain_labels, gains_of, gains_on

    comparison = _comparison(runs)
    known = gains_of(comparison)
    if not known:
        raise ConfigurationError(
            "odt_sim.plot.gains: the runs have no gains; add a run of strategy=local with the same seed"
        )
    if ax is None:
        return _new(partial(draw_gains, comparison=comparison))
    given = [*ax] if isinstance(ax, Iterable) else [ax]
    if len(given) != len(known):
        raise ConfigurationError(
            f"odt_sim.plot.gains: ax: expected {len(known)} axes, for {', '.join(known)}; found {len(given)}"
        )
    gains_on(given, known, comparison)
    x_label, y_label = gain_labels(comparison)
    for each in given:
        each.set(xlabel=x_label, ylabel=y_label)
    return given


def pareto(runs: Runs, cost: str = "megabytes", ax: "Axes | None" = None) -> "Axes":
    """Draw the weighted mean of the metric over a cost, with the Pareto front: a point per configuration.

    Args:
        runs: The runs to draw.
        cost: `megabytes` (traffic), `train_calls` (training steps), or for runs on the clock `hours` or `joules`.
        ax: The axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: The cost is unknown, or no run has it.
    """
    from odt_sim.report.columns import COSTS
    from odt_sim.report.pareto_plot import draw_pareto, points

    known = {each.key: each for each in COSTS}
    if cost not in known:
        raise ConfigurationError(f"odt_sim.plot.pareto: cost: expected one of {', '.join(known)}; found {cost!r}")
    comparison = _comparison(runs)
    if not points(comparison, known[cost]):
        raise ConfigurationError(f"odt_sim.plot.pareto: no run recorded {cost}; choose another cost")
    return _drawn(draw_pareto, comparison, ax, cost=known[cost])


def _comparison(runs: Runs) -> "Comparison":
    """Return the comparison of runs.

    Raises:
        ConfigurationError: No run is complete.
    """
    from odt_sim.report.comparison import Comparison, compare, compare_runs

    if isinstance(runs, Comparison):
        comparison = runs
    elif isinstance(runs, Results):
        comparison = compare_runs(runs._runs)  # already read
    else:
        folders = [runs] if isinstance(runs, str | os.PathLike) else runs
        comparison = compare([Path(folder) for folder in folders])
    if not comparison.rows:
        raise ConfigurationError("odt_sim.plot: no run is complete; resume the runs first")
    return comparison


def _drawn(draw: "Callable[..., None]", comparison: "Comparison", ax: "Axes | None", **options: Any) -> "Axes":
    """Draw on the given axes, or on those of a new figure, and return them."""
    from odt_sim.report.style import on_figure

    if ax is None:
        return _new(on_figure(draw, comparison, **options))[0]
    draw(ax, comparison, **options)
    return ax


def _new(draw: "Callable[[Figure], None]") -> "list[Axes]":
    """Draw in a new figure in the report's style; pyplot shows it in a notebook."""
    import matplotlib
    from matplotlib import pyplot

    from odt_sim.report.style import LIGHT

    # Chooses the backend now: a notebook's backend sets rcParams["interactive"], which the context would undo.
    pyplot.draw_if_interactive()  # type: ignore[no-untyped-call]
    with matplotlib.rc_context(LIGHT.settings()):
        figure = pyplot.figure(layout="constrained")
        draw(figure)
    return figure.axes
