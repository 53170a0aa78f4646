"""What seeded data sets share: the check of their settings, and the generator of a seed."""

import math

import numpy as np

from odt_sim.errors import ConfigurationError


def drawn(stream: int, seed: int, **settings: tuple[float, float]) -> np.random.Generator:
    """Return the random generator of a data set, once its settings are checked.

    Args:
        stream: Keeps the random numbers of data sets, partitions and splits apart.
        seed: The seed of the data, independent of a run's seed.
        **settings: For each setting its value and the least one.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    for name, (value, least) in {**settings, "seed": (seed, 0)}.items():
        if not (math.isfinite(value) and value >= least):
            raise ConfigurationError(f"data.{name}: expected a number of at least {least}, found {value}")
    return np.random.default_rng([seed, stream])
