"""Random generators that depend on their purpose only."""

from functools import lru_cache

import numpy as np


def generator_for(*purpose: str | int) -> np.random.Generator:
    """Return the generator `numpy.random.default_rng(purpose)`, with texts as base-256 numbers.

    Splitting integers into 32-bit words takes half of numpy's time, so the words are cached.

    Args:
        purpose: Texts and non-negative integers, such as a seed, a device and a round.
    """
    words = np.array([word for part in purpose for word in _words(part)], np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


@lru_cache(4096)
def _words(part: str | int) -> list[int]:
    """Return the 32-bit words of an integer, the lowest first."""
    number = int.from_bytes(part.encode(), "big") if isinstance(part, str) else int(part)
    return [number >> shift & 0xFFFFFFFF for shift in range(0, max(1, number.bit_length()), 32)]
