"""Test whether a mean difference is more than chance: Student's t over what is independent, and Holm's adjustment.

One formula gives both interval and p, so that the 95 % interval leaves out 0 exactly where p is below 0.05.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Unit = Literal["people", "seeds", "devices"]
"""What a test takes as independent."""

FEWEST: Mapping[Unit, int] = {"people": 6, "devices": 6, "seeds": 3}
"""With fewer of a unit there is no test: an interval of t with one degree of freedom is 12.7 standard errors to each side."""

CONFIDENCE = 0.95
_ROUNDING = 1e-12  # of the largest difference: 0.9 - 0.8 and 0.8 - 0.7 are equal


class Tested(NamedTuple):
    """A test of the mean.

    Attributes:
        interval: The interval of confidence `CONFIDENCE`.
        p: The two-sided p that the mean is 0.
    """

    interval: tuple[float, float]
    p: float


def units(differences: Sequence[Mapping[str, float]], returning: bool) -> tuple[Unit, Array]:
    """Return what is independent in the differences of several seeds, and its differences.

    Seeds are not new people. Where the same people return with every seed, their differences are correlated over seeds,
    and each counts once, with the mean over seeds. Where a seed draws other devices, all devices of a seed share its
    models, and each seed counts once, with the mean over its devices. With one seed there are only its devices.

    Args:
        differences: For each seed the difference of each device by its user, or by its id; at least one each.
        returning: Whether equal keys are the same people under every seed.

    Returns:
        The unit, and `[units]` the difference of each.
    """
    if len(differences) > 1 and not returning:
        return "seeds", np.array([np.mean([*of_seed.values()]) for of_seed in differences])
    return ("people" if len(differences) > 1 else "devices"), by_key(differences)


def by_key(differences: Sequence[Mapping[str, float]]) -> Array:
    """Return `[keys]` the mean over seeds of the difference of each key."""
    keys = dict.fromkeys(key for of_seed in differences for key in of_seed)
    if keys and all(len(of_seed) == len(keys) for of_seed in differences):
        whole: Array = np.array([[of_seed[key] for of_seed in differences] for key in keys])
        return np.asarray(whole.mean(axis=1))
    return np.array([np.mean([of_seed[key] for of_seed in differences if key in of_seed]) for key in keys])


def student(values: Array, fewest: int) -> Tested | None:
    """Return the interval and the p of Student's t (1908) for the mean of independent values.

    Args:
        values: `[units]`.
        fewest: The smallest number of units to test.

    Returns:
        None with fewer units, and where all have the same difference, which leaves nothing to estimate the error from.
        Differences of 0 throughout have the interval from 0 to 0 and a p of 1.
    """
    from scipy.special import stdtr, stdtrit

    if len(values) < fewest:
        return None
    if not np.any(values):
        return Tested((0.0, 0.0), 1.0)
    mean, freedom = float(values.mean()), len(values) - 1
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    if error <= _ROUNDING * np.abs(values).max():
        return None
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Tested((mean - half, mean + half), float(2 * stdtr(freedom, -abs(mean) / error)))


def signs(values: Array) -> NDArray[np.int64]:
    """Return `[values]` -1, 0 or 1; 0 for what is 0 up to rounding."""
    rounding = _ROUNDING * np.abs(values).max(initial=0.0)
    return np.where(np.abs(values) <= rounding, 0, np.sign(values)).astype(np.int64)


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
