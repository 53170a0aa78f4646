"""Whether a mean difference of pairs is more than chance: an interval by bootstrap, and the p of a signed-rank test."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEWEST_PAIRS = 6
"""With fewer pairs the two-sided signed-rank test cannot reach 0.05: the smallest p of n pairs is 2 / 2^n."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
_SEED = 20_240  # any fixed one: a report is the same each time it is made
_AT_ONCE = 2_000_000  # draws held in memory


def interval(differences: Sequence[Array]) -> tuple[float, float]:
    """Returns the percentile bootstrap interval of the mean over all pairs (Efron and Tibshirani, 1993, chapter 13).

    Devices of one run share what was trained, so their differences vary together from run to run. With several runs these
    are drawn first, with replacement, and then each one's devices (Davison and Hinkley, 1997, section 3.8): the interval
    holds both kinds of chance. With one run only devices are drawn, and it says nothing of other seeds.

    Args:
        differences: For each run the differences of its pairs, at least one.
    """
    random = np.random.default_rng(_SEED)
    sums, counts = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for _ in differences:
        drawn = random.integers(len(differences), size=RESAMPLES)
        for number, of_run in enumerate(differences):
            sums[drawn == number] += _resampled_sums(of_run, int(np.sum(drawn == number)), random)
            counts[drawn == number] += len(of_run)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(sums / counts, [tail, 1 - tail]).tolist()
    return low, high


def signed_rank_p(differences: Array) -> float | None:
    """Returns the two-sided p of Wilcoxon's signed-rank test (1945) that differences are symmetric around 0.

    Differences of 0, which are common where devices have few test examples, are ranked with the others and then left out
    of the sums (Pratt, 1959): many of them speak for no difference, and dropping them first would hide that.

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
    equal_where_equal = np.round(differences / scale, 12)  # 0.9 - 0.8 is not quite 0.8 - 0.7, and shall have its rank
    return float(wilcoxon(equal_where_equal, zero_method="pratt").pvalue)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Returns p values adjusted for being several (Holm, 1979): each may be read as if it were the only one.

    Args:
        values: p values; None is left as it is, and not counted.
    """
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        adjusted[place] = largest
    return adjusted


def _resampled_sums(values: Array, times: int, random: np.random.Generator) -> Array:
    """Returns `[times]` sums of as many values as there are, drawn with replacement."""
    step = max(1, _AT_ONCE // len(values))
    parts = [
        values[random.integers(len(values), size=(min(step, times - start), len(values)))].sum(axis=1)
        for start in range(0, times, step)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
