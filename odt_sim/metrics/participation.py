"""Evenness of the devices' participation in training."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def gini(counts: NDArray[Any]) -> float | None:
    """Return the Gini coefficient of counts: 0 if all are equal, close to 1 if one device has all.

    It is half of the mean absolute difference of all pairs relative to the mean (Gini, 1912), computed from sorted
    counts.

    Args:
        counts: `[devices]`, at least 0.

    Returns:
        None without devices or if all counts are 0.
    """
    ordered = np.sort(np.asarray(counts, np.float64))
    total, devices = ordered.sum(), len(ordered)
    if not total:
        return None
    return float((2 * np.arange(1, devices + 1) - devices - 1) @ ordered / (devices * total))
