"""Poses of a two-jointed arm, for regression of several targets."""

import numpy as np

from odt_sim.arguments import names_arguments
from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.data.drawn import drawn

_STREAM = 13


@names_arguments
def arm(users: int = 20, examples: int = 40, seed: int = 0) -> Dataset:
    """Draw poses of an arm with the position of its hand; users differ in arm lengths and movements.

    With the joints' angles a and b, an upper arm of length u and a forearm of length f, the hand is at

        (u cos a + f cos(a + b), u sin a + f sin(a + b)),   u, f ~ N(1, 0.15),

    measured with a noise of 0.02. A user's angles are normal around a user's own means.

    Args:
        users: The number of users.
        examples: The number of poses per user.
        seed: The seed of the data.

    Returns:
        `x` `[poses, 2]` float32, the angles in radians, `y` `[poses, 2]` float32, across and up.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    generator = drawn(_STREAM, seed, users=(users, 1), examples=(examples, 3))
    owners = np.repeat(np.arange(users), examples)
    upper, fore = (np.abs(generator.normal(1, 0.15, users))[owners] for _ in range(2))
    means = generator.uniform([0.2, 0.3], [1.2, 1.3], (users, 2))
    x = means[owners] + generator.normal(0, 0.5, (len(owners), 2))
    first, both = x[:, 0], x.sum(axis=1)
    y = np.stack([upper * np.cos(first) + fore * np.cos(both), upper * np.sin(first) + fore * np.sin(both)], axis=1)
    return check(Dataset(f"arm seed={seed}", x, y + generator.normal(0, 0.02, y.shape), owners))
