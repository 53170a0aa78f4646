"""A uniform choice among a large fleet's eligible devices, without checking all devices."""

from collections.abc import Callable

import numpy as np

from odt_sim.fleet.classes import Ids

SPARE = 1.5
"""The factor of devices that are checked over those that are expected to be needed."""


def choose_eligible(candidates: Ids, size: int, eligible: Callable[[Ids], Ids], generator: np.random.Generator) -> Ids:
    """Return `size` eligible candidates, drawn uniformly, ascending; all of them if there are fewer.

    Candidates are drawn in random order and checked until enough are eligible, so the time for a small cohort of a
    large fleet is proportional to the cohort.

    Args:
        candidates: The devices to choose from, ascending.
        size: The number of devices to choose.
        eligible: Returns the eligible devices among given ones, in their order.
        generator: The random generator.
    """
    order, seen, chosen = _Order(len(candidates), generator), 0, np.zeros(0, np.int64)
    while len(chosen) < size and seen < len(candidates):
        share = len(chosen) / seen if len(chosen) else 1.0
        wanted = int(SPARE * (size - len(chosen)) / share) + 16 if seen == 0 or len(chosen) else 4 * seen
        drawn = order.take(wanted)
        seen += len(drawn)
        chosen = np.concatenate([chosen, eligible(candidates[drawn])])
    return np.sort(chosen[:size])


class _Order:
    """A random order of the numbers below `count`, drawn in parts."""

    def __init__(self, count: int, generator: np.random.Generator) -> None:
        self._count, self._generator = count, generator
        self._taken = np.zeros(0, np.int64)

    def take(self, wanted: int) -> Ids:
        """Return up to `wanted` next integers of the order."""
        left = self._count - len(self._taken)
        if 4 * (len(self._taken) + wanted) >= self._count:  # too many numbers would repeat
            rest = np.setdiff1d(np.arange(self._count), self._taken, assume_unique=True)
            found = self._generator.permutation(rest)[: min(wanted, left)]
        else:
            drawn = self._generator.integers(0, self._count, 2 * wanted + 16)
            unique = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
            found = unique[~np.isin(unique, self._taken)][:wanted]
        self._taken = np.concatenate([self._taken, found])
        return found
