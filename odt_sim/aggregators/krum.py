"""Krum and multi-Krum: the updates closest to most others.

Paper: Blanchard et al. 2017, Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, sections 4 and 6.
Rule: for `n` updates, of which `f` may be hostile, the score of an update is the sum of squared distances, over all
tensors, to the `n - f - 2` nearest others. The result is the mean of the `selected` updates with the smallest scores;
ties are decided in favour of the first device. `f` is `hostile` times the number of updates, rounded up; `n` must be at
least `2 f + 3`, and `selected` at most `n - f - 2`: within these limits, multi-Krum is proven resilient (El Mhamdi et
al. 2018, The Hidden Vulnerability of Distributed Learning in Byzantium). As published, all devices have equal weights.
Costs: the coordinator keeps all updates of a round in memory, 4 bytes per number and device, and compares all pairs.
Hyper-parameters: `hostile`, 0 to below 0.5, default 0.2; `selected`, 1 or more, default 1, which is Krum (m in the
paper).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from odt_sim._support.checks import checked_count
from odt_sim.aggregators.base import Aggregator, with_numbers
from odt_sim.aggregators.hostile import checked_fraction, hostile_devices
from odt_sim.aggregators.stacked import Numbers, aligned, pieces
from odt_sim.errors import ConfigurationError
from odt_sim.model.tensors import array_of
from odt_sim.strategies.base import Tensors, Update, Updates


class Krum(Aggregator):
    """Mean of the few updates closest to most others, with equal weights."""

    keeps_updates = True

    def __init__(self, hostile: float = 0.2, selected: int = 1) -> None:
        """Set the fraction of hostile devices and the number of selected updates.

        Args:
            hostile: Fraction of the devices that may be hostile, 0 to below 0.5.
            selected: Number of updates to average, at least 1; above 1 it is multi-Krum.
        """
        self.hostile = checked_fraction(hostile)
        self.selected = checked_count("selected", selected, 1, group="aggregator")

    def check(self, devices: int) -> None:
        """Check that there are enough updates for the proof of resilience."""
        hostile = hostile_devices(self.hostile, devices)
        least = max(2 * hostile + 3, self.selected + hostile + 2)
        if devices < least:
            raise ConfigurationError(
                f"aggregator {self.name}: expected at least {least} updates, since {hostile} may be hostile "
                f"(aggregator.hostile is {self.hostile}) and {self.selected} are selected, found {devices}; use more "
                "devices per round (fleet.cohort), or smaller values"
            )

    def combine(self, updates: Updates, cohort: int, random: np.random.Generator) -> Updates:
        """Average the updates with the smallest scores."""
        nearest = updates.count - hostile_devices(self.hostile, updates.count) - 2
        distances = squared_distances(updates.each)
        np.fill_diagonal(distances, np.inf)
        scores = np.sort(distances, axis=1)[:, :nearest].sum(axis=1)
        chosen = np.sort(np.argsort(scores, kind="stable")[: self.selected])
        each = list(updates.each.values())
        return replace(updates, mean=_mean([each[place] for place in chosen]))


def squared_distances(each: Mapping[int, Update]) -> Numbers:
    """Return the squared distances between updates, `[devices, devices]`, bit-identical for any number of threads.

    Raises:
        StrategyError: Devices sent different tensors.
    """
    distances = np.zeros((len(each), len(each)))
    for arrays in aligned(each).values():
        for piece in pieces(arrays):
            for place in range(1, len(each)):
                apart = piece[:place] - piece[place]
                distances[place, :place] += np.einsum(
                    "dn,dn->d", apart, apart
                )  # BLAS products depend on the number of threads
    return np.asarray(distances + distances.T)


def _mean(chosen: list[Update]) -> Tensors:
    return {
        name: with_numbers(tensor, np.stack([array_of(u.tensors[name]) for u in chosen]).mean(axis=0, dtype=np.float64))
        for name, tensor in chosen[0].tensors.items()
    }
