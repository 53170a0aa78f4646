"""Ranks of strategies over tasks, the Friedman test, and the critical difference of average ranks.

Demsar 2006, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7. A task is one observation: results
are averaged over its seeds before ranking, since seeds are not independent tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Friedman:
    """Result of the test of the hypothesis that all strategies are equal.

    Attributes:
        chi_square: Friedman's statistic, equation 7 of Demsar.
        f: The statistic of Iman and Davenport (1980), equation 8; infinite if all tasks agree.
        p: The p-value of `f`. If all tasks agree, the probability that random rankings do: `k!^(1 - N)` for k
            strategies and N tasks.
    """

    chi_square: float
    f: float
    p: float


def ranks(values: Sequence[float], *, higher_is_better: bool, devices: Sequence[int] | None = None) -> Array:
    """Return the ranks on one task, `[strategies]`: 1 is best, and equal values share the mean of their ranks.

    Args:
        values: One value per strategy; NaN, for a strategy that failed, is worse than any other.
        higher_is_better: Whether larger values are better.
        devices: The number of devices in each value; more devices rank first, so that a strategy does not win by a mean
            over the devices that did not diverge. None if the numbers are equal.
    """
    from scipy.stats import rankdata

    costs = -np.array(values, np.float64) if higher_is_better else np.array(values, np.float64)
    missing = np.zeros(len(costs)) if devices is None else -np.array(devices, np.float64)
    failed = np.isnan(costs)
    pairs = np.stack([np.where(failed, np.inf, missing), np.where(failed, np.inf, costs)], axis=1)
    _, places = np.unique(pairs, axis=0, return_inverse=True)  # sorted by devices first
    found: Array = rankdata(places.reshape(-1))
    return found


def friedman(ranked: Array) -> Friedman | None:
    """Return the Friedman test.

    Args:
        ranked: `[tasks, strategies]`.

    Returns:
        None with fewer than two tasks or strategies.
    """
    from scipy.special import fdtrc

    tasks, strategies = ranked.shape
    if tasks < 2 or strategies < 2:
        return None
    squares = float(np.sum(ranked.mean(axis=0) ** 2))
    chi_square = 12 * tasks / (strategies * (strategies + 1)) * (squares - strategies * (strategies + 1) ** 2 / 4)
    left = tasks * (strategies - 1) - chi_square
    if left <= 1e-9:
        return Friedman(chi_square, np.inf, float(factorial(strategies)) ** (1 - tasks))
    f = (tasks - 1) * chi_square / left
    return Friedman(chi_square, f, float(fdtrc(strategies - 1, (strategies - 1) * (tasks - 1), max(f, 0.0))))


def critical_difference(strategies: int, tasks: int) -> float:
    """Return the difference of average ranks from which two strategies differ significantly, by Nemenyi's test.

    It is `q sqrt(k (k + 1) / 6 N)` for k strategies and N tasks, where `q` is the quantile of the studentized range at
    `CONFIDENCE` for k groups and infinitely many degrees of freedom, divided by the square root of 2.

    Args:
        strategies: The number of strategies, at least 2.
        tasks: The number of tasks, at least 1.
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(CONFIDENCE, strategies, np.inf)) / 2**0.5
    return float(q * (strategies * (strategies + 1) / (6 * tasks)) ** 0.5)


def cliques(average: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return the maximal groups of indistinguishable strategies, each by the indices of its first and last one.

    Args:
        average: Average ranks, ascending.
        difference: The critical difference.
    """
    found: list[tuple[int, int]] = []
    for first, low in enumerate(average):
        last = max(place for place, rank in enumerate(average) if rank - low <= difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
