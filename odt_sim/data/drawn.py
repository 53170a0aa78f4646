"""Check of settings and random generator, shared by synthetic data sets."""

import math

import numpy as np

from odt_sim.errors import ConfigurationError


def drawn(stream: int, seed: int, **settings: tuple[float, float]) -> np.random.Generator:
    """Check the settings of a data set and return its random generator.

    Args:
        stream: Separates the random numbers of data sets, partitions and splits.
        seed: The seed of the data, independent of a run's seed.
        **settings: The value and the minimum of each setting.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    for name, (value, least) in {**settings, "seed": (seed, 0)}.items():
        if not (math.isfinite(value) and value >= least):
            raise ConfigurationError(f"data.{name}: expected a number of at least {least}, found {value}")
    return np.random.default_rng([seed, stream])
