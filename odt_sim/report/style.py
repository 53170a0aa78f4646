"""Colours and sizes of the plots; the colours suit colour-blind readers, light pages and dark pages."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from numpy.typing import NDArray

from odt_sim.metrics.names import is_percent, kind_of, title_of
from odt_sim.report.comparison import Configuration

Array = NDArray[np.float64]

WIDTH = 8.0
"""Width of a plot, in inches."""

DPI = 160

WIDE = 30.0
"""The ratio of the largest to the smallest value above which an axis is logarithmic."""

LOCAL = "#858585"
"""The colour of the baseline: grey, so that strategies stand out against it."""

PALETTE = ("#0083c9", "#e08a00", "#009e73", "#c563a0", "#d3502f", "#8a79d6")
"""Colours after Okabe and Ito (2008), adjusted to medium lightness: at least 2.5:1 contrast on both backgrounds."""

LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
"""Line styles of a strategy's configurations, and of further strategies once all colours are taken."""


_LINE = 26
"""The maximum length of a label's lines, in characters."""

_WORD = re.compile(r".+?(?:[,=/]|(?<=[^\W\d])[_.](?=\w)|$)")
"""A part of a label that is not broken: up to `,`, `=`, `/`, or a `_` or `.` after a letter (not a decimal point)."""


@dataclass(frozen=True)
class Theme:
    """The colours of a plot, equal to those of the page."""

    name: str
    background: str
    text: str
    faint: str

    def settings(self) -> Any:
        """Return matplotlib's settings."""
        return {
            "font.size": 11,
            "text.parse_math": False,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.grid": True,
            "grid.linewidth": 0.8,
            "grid.color": self.faint,
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "figure.facecolor": self.background,
            "axes.facecolor": self.background,
            "savefig.facecolor": self.background,
            "axes.edgecolor": self.faint,
            **dict.fromkeys(
                ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), self.text
            ),
        }


LIGHT = Theme("light", background="#ffffff", text="#24292f", faint="#e4e7eb")
DARK = Theme("dark", background="#15181d", text="#d7dce2", faint="#2d333b")


@dataclass(frozen=True)
class Stroke:
    """The stroke of a configuration: the colour of its strategy, and a line style."""

    color: str
    line: Any


def strokes(rows: Sequence[Configuration]) -> Mapping[str, Stroke]:
    """Return the stroke of each configuration, by label."""
    colors = colors_of(row.strategy for row in rows)
    places = {name: place for place, name in enumerate(colors, -1)}  # the first is `local`
    drawn: dict[str, Stroke] = {}
    used: Counter[str] = Counter()
    for row in rows:
        line = LINES[(used[row.strategy] + max(places[row.strategy], 0) // len(PALETTE)) % len(LINES)]
        drawn[row.label] = Stroke(colors[row.strategy], line)
        used[row.strategy] += 1
    return drawn


def colors_of(strategies: Iterable[str]) -> dict[str, str]:
    """Return the colour of each strategy: `local` first, then the others in the order of their first occurrence."""
    others = [name for name in dict.fromkeys(strategies) if name != "local"]
    return {"local": LOCAL, **{name: PALETTE[place % len(PALETTE)] for place, name in enumerate(others)}}


def figure_of(axes: Axes) -> Figure:
    """Return the whole figure of axes, even if they are in a subfigure."""
    figure: Any = axes.figure
    return cast(Figure, figure.figure)


def on_figure(draw: Callable[..., None], comparison: Any, **options: Any) -> Callable[[Figure], None]:
    """Return a function that draws a plot of single axes on an empty figure, of the size that suits the plot.

    Args:
        draw: Draws on axes, with `alone=True` in a figure of a suitable size.
        comparison: The comparison to draw.
        **options: Further arguments of `draw`.
    """
    return lambda figure: draw(figure.add_subplot(), comparison, **options, alone=True)


def percent_factor(metric: str) -> float:
    """Return the factor of a metric on an axis: fractions are shown in percent."""
    return 100.0 if is_percent(metric) else 1.0


def axis_unit(metric: str) -> str:
    """Return a metric's name and unit for an axis."""
    return f"{title_of(metric)} (%)" if is_percent(metric) else title_of(metric)


def wrap_label(label: str) -> str:
    """Return a label with one override per line, in lines of at most 26 characters; numbers are not broken."""
    lines = []
    for part in label.split(" "):
        lines.append("")
        for word in (piece for whole in _WORD.findall(part) for piece in wrap(whole, _LINE)):
            if lines[-1] and len(lines[-1]) + len(word) > _LINE:
                lines.append("")
            lines[-1] += word
    return "\n".join(lines)


def scale_axis(axes: Axes, direction: Literal["x", "y"], metric: str, values: Array) -> bool:
    """Make the axis logarithmic if an unbounded metric is widely spread, and return whether it is."""
    wide = not kind_of(metric).bounded and values.size > 0 and values.min() > 0 and values.max() > WIDE * values.min()
    if wide:
        make_logarithmic(axes, direction)
    return bool(wide)


def make_logarithmic(axes: Axes, direction: Literal["x", "y"]) -> None:
    """Make an axis logarithmic with plain numbers: matplotlib's labels are math text, which `Theme` does not parse."""
    (axes.set_xscale if direction == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if direction == "x" else axes.yaxis
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(LogFormatter())
