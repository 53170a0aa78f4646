"""Fraction of hostile devices that robust aggregators tolerate."""

import math

from odt_sim._support.checks import checked


def checked_fraction(fraction: float) -> float:
    """Check that `aggregator.hostile` is at least 0 and below 0.5, and return it.

    Raises:
        ConfigurationError: The fraction is out of range.
    """
    return checked("hostile", fraction, 0, 0.5, below=True, group="aggregator")


def hostile_devices(fraction: float, devices: int) -> int:
    """Return the number of hostile devices, rounded up: 1 of 4 for a fraction of 0.2."""
    return math.ceil(round(fraction * devices, 9))  # 0.07 * 100 is slightly above 7 in floating point
