"""Random draws for many devices: numbers that depend only on seed, purpose, device and count, and choices of devices.

A generator per device would take microseconds; hashing an array takes nanoseconds per device. The hash is the output
function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from collections.abc import Callable
from functools import lru_cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def uniform(seed: int, purpose: str, ids: Ids, count: int | Ids = 0) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1), `[ids]`.

    Args:
        seed: The run's seed.
        purpose: A text that separates independent uses.
        ids: The devices' ids.
        count: A number that separates a device's independent draws, such as a day's: one for all devices, or `[ids]`.
    """
    words = np.asarray(ids).astype(np.uint64)
    words *= GAMMA
    words += _start(seed, purpose)
    counts = np.atleast_1d(count).astype(np.uint64)
    _mix(words)
    words += (counts + np.uint64(1)) * GAMMA
    _mix(words)
    words >>= np.uint64(11)
    return np.asarray(words * 2.0**-53, np.float64)


@lru_cache(1024)
def _start(seed: int, purpose: str) -> np.uint64:
    word = np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64) ^ np.uint64(crc32(purpose.encode()) << 32)
    return np.uint64(_mix(word)[0])


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of words in place, because new arrays would take most of the time; return the words."""
    shifted = words >> np.uint64(30)
    words ^= shifted
    words *= FIRST
    words ^= np.right_shift(words, np.uint64(27), out=shifted)
    words *= SECOND
    words ^= np.right_shift(words, np.uint64(31), out=shifted)
    return words


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
            chosen = self._generator.permutation(rest)[: min(wanted, left)]
        else:
            drawn = self._generator.integers(0, self._count, 2 * wanted + 16)
            unique = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
            chosen = unique[~np.isin(unique, self._taken)][:wanted]
        self._taken = np.concatenate([self._taken, chosen])
        return chosen
