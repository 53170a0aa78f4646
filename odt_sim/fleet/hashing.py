"""Random numbers for many devices, which depend only on the seed, the purpose, the device and a count.

A generator per device would take microseconds; hashing an array takes nanoseconds per device. The hash is the output
function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

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
