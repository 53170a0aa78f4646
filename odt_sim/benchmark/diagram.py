"""Critical-difference diagram of Demsar (2006): average ranks of strategies, with bars over indistinguishable ones."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from odt_sim.benchmark.ranks import cliques
from odt_sim.benchmark.results import Results
from odt_sim.report.style import PALETTE, WIDTH

BAR, LABEL = 0.6, 1.0  # heights of a bar and a label, in rows


def draw_ranks(figure: Figure, results: Results) -> None:
    """Draw the average ranks of all ranked strategies, with the better half labelled on the left."""
    average = results.ranks().mean(axis=0).tolist()
    bars = cliques(average, results.critical_difference or 0.0)
    half = (len(average) + 1) // 2
    top = 1 + BAR * len(bars) + LABEL
    rows = top + half * LABEL
    figure.set_size_inches(WIDTH, 0.9 + 0.24 * rows)
    axes = figure.add_subplot()
    color = axes.xaxis.label.get_color()
    for place, (first, last) in enumerate(bars):
        axes.plot([average[first] - 0.1, average[last] + 0.1], [1 + BAR * place] * 2, color=PALETTE[0], linewidth=4)
    low, high = 1.0, max(len(average), 2)
    margin = 0.3 * (high - low)
    for place, (name, rank) in enumerate(zip(results.ranked_strategies, average, strict=True)):
        left = place < half
        row = top + LABEL * (place if left else len(average) - 1 - place)
        end = low - 0.05 * margin if left else high + 0.05 * margin
        axes.plot([rank, rank, end], [0, row, row], color=color, linewidth=0.8)
        text = f"{name}  {rank:.1f}" if left else f"{rank:.1f}  {name}"
        axes.text(end, row, f"{text} " if left else f" {text}", ha="right" if left else "left", va="center", fontsize=9)
    _difference(axes, results.critical_difference, color)
    axes.set(xlim=(low - margin, high + margin), ylim=(rows, -2.2))
    axes.grid(visible=False)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    for name, spine in axes.spines.items():
        spine.set_visible(name == "top")
    axes.spines["top"].set_position(("data", 0))
    axes.spines["top"].set_bounds(low, high)
    axes.spines["top"].set_color(color)
    axes.set_xticks([tick for tick in axes.get_xticks() if low <= tick <= high])
    axes.tick_params(axis="x", length=4)


def _difference(axes: Axes, difference: float | None, color: Any) -> None:
    """Draw the length of the critical difference above the scale."""
    if difference is None:
        return
    axes.plot([1, 1 + difference], [-1.4, -1.4], color=color, linewidth=1.5, marker="|")
    axes.text(1 + difference / 2, -1.6, f"critical difference {difference:.1f}", ha="center", va="bottom", fontsize=9)
