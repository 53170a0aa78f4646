"""The metrics of continual learning, from the periods' columns of rounds: what training over time keeps and loses.

`a[t, j]` is the metric on the test examples of period j at the end of period t, and T the last period so far:

| figure | formula |
|---|---|
| `now` | `a[T, T]` |
| `average` | mean over j of `a[T, j]` |
| `plasticity` | mean over j of `a[j, j]`: how well each period was learned when it was new |
| `forgetting` | mean over j < T of `best of a[t, j], t < T, - a[T, j]` |

Lopez-Paz and Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017 (average); Chaudhry et al., "Riemannian
walk for incremental learning", ECCV 2018 (forgetting).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.names import higher_is_better

FIGURES = ("now", "average", "plasticity", "forgetting")


def is_period(column: str, metric: str) -> bool:
    """Return whether a column contains a metric on the examples of one period."""
    return re.fullmatch(rf"period_\d+_{re.escape(metric)}", column) is not None


def period_of(column: str) -> int:
    """Return the period of a column for which `is_period` is true, from 1."""
    return int(column.split("_")[1])


def by_period(rounds: Sequence[Mapping[str, Any]], metric: str) -> NDArray[np.float64]:
    """Return a table `[periods, periods]` whose entry `[t, j]` is the metric on period j at the end of period t.

    A round belongs to the last period for which it has a column; the last evaluated round of a period counts. NaN means
    unknown or undefined.

    Args:
        rounds: The lines of `rounds.jsonl`, ascending.
        metric: The first metric of the run's model.
    """
    found = [{period_of(name): row[name] for name in row if is_period(name, metric)} for row in rounds]
    periods = max((max(own) for own in found if own), default=0)
    table = np.full((periods, periods), np.nan)
    for own in found:
        for period, value in own.items():
            table[max(own) - 1, period - 1] = np.nan if value is None else value
    return table


def continual_figures(rounds: Sequence[Mapping[str, Any]], metric: str) -> dict[str, float] | None:
    """Return the `FIGURES` of a run; None if its examples do not arrive over time.

    Figures that are undefined in all periods are absent; `forgetting` needs two periods.

    Args:
        rounds: The lines of `rounds.jsonl`, ascending.
        metric: The first metric of the run's model.
    """
    table = by_period(rounds, metric)
    if not table.size:
        return None
    last, new = table[-1], np.diag(table)
    figures = {"now": new[-1], "average": _mean(last), "plasticity": _mean(new)}
    earlier = table[:-1, :-1] if higher_is_better(metric) else -table[:-1, :-1]
    if earlier.size:
        lost = np.fmax.reduce(earlier, axis=0) - (last[:-1] if higher_is_better(metric) else -last[:-1])
        figures["forgetting"] = _mean(lost)
    return {name: float(value) for name, value in figures.items() if np.isfinite(value)}


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean of the known values; NaN without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
