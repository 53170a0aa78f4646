"""Test whether a mean difference of pairs is more than chance: a bootstrap interval and a signed-rank test."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEWEST_PAIRS = 6
"""With fewer pairs the two-sided signed-rank test cannot reach 0.05: the smallest p of n pairs is 2 / 2^n."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
_SEED = 20_240  # fixed, so that reports are reproducible
_AT_ONCE = 2_000_000  # draws held in memory


def interval(differences: Sequence[Array]) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean over all pairs (Efron and Tibshirani, 1993, chapter 13).

    Devices of one run share what was trained, so their differences vary together from run to run. With several runs, runs
    are drawn first, with replacement, and then devices within each (Davison and Hinkley, 1997, section 3.8): the interval
    covers both. With one run only devices are drawn, and the interval does not cover other seeds.

    Args:
        differences: The differences of each run's pairs, at least one per run.
    """
    random = np.random.default_rng(_SEED)
    sums, counts = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for _ in differences:
        drawn = random.integers(len(differences), size=RESAMPLES)
        for number, values in enumerate(differences):
            sums[drawn == number] += _resampled_sums(values, int(np.sum(drawn == number)), random)
            counts[drawn == number] += len(values)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(sums / counts, [tail, 1 - tail]).tolist()
    return low, high


def signed_rank_p(differences: Array) -> float | None:
    """Return the two-sided p of Wilcoxon's signed-rank test (1945) that differences are symmetric around 0.

    Differences of 0, which are common where devices have few test examples, are ranked with the others and then left out
    of the sums (Pratt, 1959): many of them are evidence for no difference, and dropping them first would hide it.

    Args:
        differences: `[pairs]`.

    Returns:
        None with fewer than `FEWEST_PAIRS` pairs; 1 where all differences are 0.
    """
    from scipy.stats import wilcoxon  # takes a second to import

    if len(differences) < FEWEST_PAIRS:
        return None
    if not np.any(differences):
        return 1.0
    scale = np.abs(differences).max()
    rounded = np.round(differences / scale, 12)  # so that 0.9 - 0.8 and 0.8 - 0.7 tie
    return float(wilcoxon(rounded, zero_method="pratt").pvalue)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p values adjusted for multiple comparisons (Holm, 1979).

    Args:
        values: p values; None stays None and is not counted.
    """
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        adjusted[place] = largest
    return adjusted


def _resampled_sums(values: Array, times: int, random: np.random.Generator) -> Array:
    """Return `[times]` sums of `len(values)` values drawn with replacement."""
    step = max(1, _AT_ONCE // len(values))
    parts = [
        values[random.integers(len(values), size=(min(step, times - start), len(values)))].sum(axis=1)
        for start in range(0, times, step)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
