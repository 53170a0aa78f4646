"""Tests whether a mean difference exceeds chance: Student's t over independent units, with Holm's adjustment.

Interval and p come from the same formula, so the 95 % interval excludes 0 exactly if p is below 0.05.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Unit = Literal["people", "seeds", "devices"]
"""The kind of independent units of a test."""

FEWEST: Mapping[Unit, int] = {"people": 6, "devices": 6, "seeds": 3}
"""The smallest number of units for a test: with one degree of freedom, t's interval is 12.7 standard errors each way."""

CONFIDENCE = 0.95
_ROUNDING = 1e-12  # relative to the largest difference, so that 0.9 - 0.8 equals 0.8 - 0.7


class Tested(NamedTuple):
    """A test of the mean.

    Attributes:
        interval: The confidence interval at `CONFIDENCE`.
        p: The two-sided p value for a mean of 0.
    """

    interval: tuple[float, float]
    p: float


def units(differences: Sequence[Mapping[str, float]], returning: bool) -> tuple[Unit, Array]:
    """Return the independent units in the differences of several seeds, with their differences.

    Seeds are not new people. If the same people return with every seed, their differences are correlated over seeds, so
    each person counts once, with the mean over seeds. If seeds draw other devices, all devices of a seed share its
    models, so each seed counts once, with the mean over its devices. With one seed, the units are its devices.

    Args:
        differences: The differences of each seed, by the device's user or id; at least one per seed.
        returning: Whether equal keys are the same people under every seed.

    Returns:
        The kind of unit, and the difference of each unit, `[units]`.
    """
    if len(differences) > 1 and not returning:
        return "seeds", np.array([np.mean([*of_seed.values()]) for of_seed in differences])
    return ("people" if len(differences) > 1 else "devices"), by_key(differences)


def by_key(differences: Sequence[Mapping[str, float]]) -> Array:
    """Return the mean difference over seeds of each key, `[keys]`."""
    keys = dict.fromkeys(key for of_seed in differences for key in of_seed)
    if keys and all(len(of_seed) == len(keys) for of_seed in differences):
        whole: Array = np.array([[of_seed[key] for of_seed in differences] for key in keys])
        return np.asarray(whole.mean(axis=1))
    return np.array([np.mean([of_seed[key] for of_seed in differences if key in of_seed]) for key in keys])


def student(values: Array, fewest: int) -> Tested | None:
    """Return the interval and the p value of Student's t (1908) for the mean of independent values.

    Args:
        values: The values, `[units]`.
        fewest: The smallest number of units to test.

    Returns:
        The test. None with fewer units, or if all units have the same nonzero difference, which gives no estimate of
        the error. If all differences are 0, the interval is from 0 to 0, and p is 1.
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
    """Return the sign of each value, -1, 0 or 1, `[values]`; values that are 0 up to rounding have the sign 0."""
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
