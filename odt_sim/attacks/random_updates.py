"""Random updates: noise instead of what a device learned.

Paper: Blanchard et al. 2017, Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, section 5 (Gaussian
Byzantine workers); attack A2 of Li et al. 2021, Ditto.
Rule: a hostile device sends a sample of `N(0, deviation^2)` for each number of its update, drawn anew in each round.
Integers stay unchanged, see `scaling`.
Hyper-parameters: `deviation`, above 0, default 1.
"""

import numpy as np

from odt_sim._support.checks import checked
from odt_sim.aggregators.base import with_numbers
from odt_sim.attacks.base import Attack
from odt_sim.attacks.scaling import is_real
from odt_sim.device.device import Device
from odt_sim.model.tensors import array_of
from odt_sim.strategies.base import Tensors


class RandomUpdates(Attack):
    """Attack by sending Gaussian noise."""

    def __init__(self, deviation: float = 1.0) -> None:
        """Set the size of the noise.

        Args:
            deviation: Standard deviation of each number, above 0.
        """
        self.deviation = checked("deviation", deviation, 0, above=True, group="attack")

    def sent(self, device: Device, tensors: Tensors) -> Tensors:
        """Return noise in the shapes of the tensors."""
        random = device.random("attack")
        return {
            name: with_numbers(tensor, self.deviation * random.standard_normal(np.shape(array_of(tensor))))
            if is_real(tensor)
            else tensor
            for name, tensor in sorted(tensors.items())
        }
