"""Coordinate-wise median.

Paper: Yin et al. 2018, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, algorithm 1, option I.
Rule: each number of the result is the median of that number over the devices' updates; for an even number of devices,
the mean of the two middle values. As published, all devices have equal weights. If fewer than half of the devices are
hostile, each number is within the range of the honest devices. If devices differ widely, the median is far from the
mean even without an attack, since it ignores what only a few devices have learned.
Costs: the coordinator keeps all updates of a round in memory, 4 bytes per number and device.
Hyper-parameters: none.
"""

from dataclasses import replace

import numpy as np

from odt_sim.aggregators.base import Aggregator
from odt_sim.aggregators.stacked import per_number
from odt_sim.strategies.base import Updates


class Median(Aggregator):
    """Median of each number over the devices, with equal weights."""

    keeps_updates = True

    def combine(self, updates: Updates, cohort: int, random: np.random.Generator) -> Updates:
        """Take the median of each number."""
        return replace(updates, mean=per_number(updates.each, lambda numbers: np.median(numbers, axis=1)))
