"""How many devices of a round may be hostile: what the rules have in common that are told so."""

import math

from odt_sim.hyperparameters import checked


def checked_fraction(fraction: float) -> float:
    """Returns `aggregator.hostile`, a fraction at least 0 and below a half.

    Raises:
        ConfigurationError: It is none.
    """
    return checked("hostile", fraction, 0, 0.5, below=True, group="aggregator")


def hostile_devices(fraction: float, devices: int) -> int:
    """Returns the least whole number of devices that is no smaller than the fraction of them: 1 of 4 for 0.2."""
    return math.ceil(round(fraction * devices, 9))  # 0.1 * 30 is a little more than 3
