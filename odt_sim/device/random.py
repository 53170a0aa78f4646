"""Random generators that depend on what they are for, and on nothing else."""

from functools import lru_cache

import numpy as np


def generator_for(*purpose: str | int) -> np.random.Generator:
    """Returns the generator that `numpy.random.default_rng` makes of integers; texts are taken as numbers, base 256.

    Numpy cuts each integer into words of 32 bits, which takes as long as all the rest: here those of a text are cut once.

    Args:
        purpose: Texts, and integers from 0, such as a seed, a device, a round.
    """
    words = np.array([word for part in purpose for word in _words(part)], np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


@lru_cache(4096)
def _words(part: str | int) -> list[int]:
    """Returns an integer's words of 32 bits, the lowest first."""
    number = int.from_bytes(part.encode(), "big") if isinstance(part, str) else int(part)
    return [number >> shift & 0xFFFFFFFF for shift in range(0, max(1, number.bit_length()), 32)]
