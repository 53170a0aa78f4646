"""Coordinate-wise trimmed mean.

Paper: Yin et al. 2018, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, algorithm 1, option II.
Rule: for each number, drop the devices' `k` largest and `k` smallest values and average the others; `k` is `hostile`
times the number of updates, rounded up. As published, all devices have equal weights. If at most `k` devices are
hostile, each number is within the range of the honest devices.
Costs: the coordinator keeps all updates of a round in memory, 4 bytes per number and device.
Hyper-parameters: `hostile`, 0 to below 0.5, default 0.2 (beta in the paper); 0 is the plain mean.
"""

from dataclasses import replace

import numpy as np

from odt_sim.aggregators.base import Aggregator
from odt_sim.aggregators.stacked import Numbers, hostile_devices, per_number
from odt_sim.errors import ConfigurationError
from odt_sim.hyperparameters import number
from odt_sim.strategies.base import Updates


class TrimmedMean(Aggregator):
    """Mean of each number without its extremes, with equal weights.

    Attributes:
        hostile: Fraction of the devices to drop at each end, 0 to below 0.5.
    """

    keeps_updates = True
    hostile: float = number(0.2, 0, 0.5, below=True)

    def check(self, devices: int) -> None:
        """Check that updates remain after trimming."""
        trimmed = hostile_devices(self.hostile, devices)
        if devices <= 2 * trimmed:
            raise ConfigurationError(
                f"aggregator {self.name}: of {devices} updates it trims {trimmed} at either end, so none remain "
                f"(aggregator.hostile is {self.hostile}); use more devices per round (fleet.cohort), or a smaller fraction"
            )

    def combine(self, updates: Updates, cohort: int, random: np.random.Generator) -> Updates:
        """Average each number without its extremes."""
        trimmed = hostile_devices(self.hostile, updates.count)

        def mean(numbers: Numbers) -> Numbers:
            kept = np.sort(numbers, axis=1)[:, trimmed : updates.count - trimmed]
            return np.asarray(kept.mean(axis=1))

        return replace(updates, mean=per_number(updates.each, mean))
