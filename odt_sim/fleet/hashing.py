"""Random numbers for each of many devices that depend on the seed, the purpose, the device and a count only.

A generator for each device would cost microseconds; a hash of integers costs nanoseconds on arrays. The hash is the output
function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def uniform(seed: int, purpose: str, ids: Ids, count: int | Ids = 0) -> NDArray[np.float64]:
    """Return `[ids]` numbers, uniform in [0, 1).

    Args:
        seed: The run's seed.
        purpose: Separates independent uses.
        ids: The devices' ids.
        count: Separates independent draws of a device, such as the number of a day: one for all devices, or `[ids]`.
    """
    start = _mixed(np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64) ^ np.uint64(crc32(purpose.encode()) << 32))
    counts = np.asarray(count, np.int64).astype(np.uint64)
    words = _mixed(start + np.asarray(ids, np.int64).astype(np.uint64) * GAMMA)
    words = _mixed(words + (counts + np.uint64(1)) * GAMMA)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))
