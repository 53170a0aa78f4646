"""Figures as text, the same in the terminal and on the page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odt_sim._support.text import counted
from odt_sim.metrics.names import is_percent, title_of
from odt_sim.metrics.units import significant
from odt_sim.persistence.run import Run

UNKNOWN = "–"
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Spread:
    """A figure over seeds.

    Attributes:
        mean: Mean over the seeds with a known figure.
        std: Sample standard deviation over these seeds; None for a single seed.
    """

    mean: float
    std: float | None

    def times(self, factor: float) -> "Spread":
        """Return the spread multiplied by a factor, such as for another unit."""
        return Spread(self.mean * factor, None if self.std is None else self.std * factor)


def over_seeds(values: Sequence[float | None]) -> Spread | None:
    """Return the spread of a figure over runs; None if it is unknown for all."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if min(known) == max(known):  # the mean of equal numbers may be rounded
        return Spread(float(known[0]), 0.0 if len(known) > 1 else None)
    return Spread(float(np.mean(known)), float(np.std(known, ddof=1)))


def score(value: float | None, metric: str) -> str:
    """Return a metric's value as text: fractions in percent with one decimal, others with three significant digits."""
    if value is None:
        return UNKNOWN
    return f"{100 * value:.1f}" if is_percent(metric) else significant(value)


def after(rounds: Sequence[int]) -> str:
    """Return in words after how many rounds runs ended, given ascending: `after 1 round`, `after 1 to 4 rounds`."""
    first, last = rounds[0], rounds[-1]
    if first < last:
        return f"after {first} to {last} rounds"
    return f"after {counted(first, 'round')}"


def heading(metric: str) -> str:
    """Return a metric's name and unit for a column's heading."""
    return f"{title_of(metric)}, %" if is_percent(metric) else title_of(metric)


def metric_unit(metric: str) -> str:
    """Return the unit of a metric's column."""
    return "percent" if is_percent(metric) else "number"


def difference_unit(metric: str) -> str:
    """Return the unit of a difference of a metric."""
    return "percentage points" if is_percent(metric) else title_of(metric)


def difference_of(metric: str) -> str:
    """Return the unit of a difference of a metric for a sentence, with the metric's name."""
    return f"percentage points of {title_of(metric)}" if is_percent(metric) else title_of(metric)


def cell(spread: Spread | None, unit: str) -> tuple[str, str]:
    """Return the text of a figure in a column's unit, and the text of its deviation over seeds (empty without one)."""
    if spread is None:
        return UNKNOWN, ""
    factor = 100 if unit in ("percent", "points") else 1
    if unit == "percent":
        value = f"{100 * spread.mean:.1f}"
    elif unit in ("points", "signed"):
        value = _signed(f"{100 * abs(spread.mean):.1f}" if factor > 1 else significant(abs(spread.mean)), spread.mean)
    else:
        value = _count(spread) if unit == "count" else significant(spread.mean)
    return value, f"±{_like(value, factor * spread.std)}" if spread.std else ""


def signed(difference: float | None, metric: str) -> str:
    """Return a difference of a metric with its sign; differences of fractions are in percentage points."""
    if difference is None:
        return UNKNOWN
    return _signed(score(abs(difference), metric), difference)


def signed_range(ends: tuple[float, float] | None, metric: str) -> str:
    """Return an interval of differences, formatted by `signed`."""
    return UNKNOWN if ends is None else f"{signed(ends[0], metric)} to {signed(ends[1], metric)}"


def probability(p: float | None) -> str:
    """Return a p value with three decimals, or `<0.001`."""
    if p is None:
        return UNKNOWN
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _signed(text: str, value: float) -> str:
    """Return the text of a magnitude with the sign of a value, unless the text is rounded to 0."""
    return f"{'' if not float(text.replace(',', '')) else '+' if value > 0 else MINUS}{text}"


def _count(spread: Spread) -> str:
    """Return a mean of whole numbers, with a decimal if it is small and not whole."""
    whole = spread.mean >= 100 or (spread.mean.is_integer() and not spread.std)
    return f"{spread.mean:,.0f}" if whole else f"{spread.mean:.1f}"


def _like(text: str, value: float) -> str:
    """Return a value with as many decimals as a text has."""
    return f"{value:.1e}" if "e" in text else f"{value:,.{len(text.partition('.')[2])}f}"


def distinct(values: Iterable[Any]) -> str:
    """Return different values as a list, each once, in their order; None is left out."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def component_of(run: Run, group: str) -> str | None:
    """Return a run's aggregator or attack with its settings, such as `krum (hostile 0.2, selected 1)`; None if unknown."""
    name, prefix = run.settings.get(group), f"{group}."
    settings = [f"{key.removeprefix(prefix)} {value}" for key, value in run.settings.items() if key.startswith(prefix)]
    return f"{name} ({', '.join(settings)})" if name and settings else name


def attack_of(run: Run) -> str | None:
    """Return the number of hostile devices and the attack, such as `4 label_poisoning (factor 1.0)`; None without any."""
    hostile = run.settings.get("fleet.hostile")
    return f"{hostile.count(',') + 1} {component_of(run, 'attack')}" if hostile else None
