"""The fraction of hostile devices that robust rules allow for."""

import math

from odt_sim.hyperparameters import checked


def checked_fraction(fraction: float) -> float:
    """Return `aggregator.hostile`, a fraction at least 0 and below 0.5.

    Raises:
        ConfigurationError: The fraction is out of range.
    """
    return checked("hostile", fraction, 0, 0.5, below=True, group="aggregator")


def hostile_devices(fraction: float, devices: int) -> int:
    """Return the fraction of the devices, rounded up: 1 of 4 for 0.2."""
    return math.ceil(round(fraction * devices, 9))  # 0.1 * 30 is a little more than 3
