"""Handwritten digits with several labels per image."""

import numpy as np

from odt_sim.arguments import names_arguments
from odt_sim.data.columns import only
from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.data.drawn import drawn
from odt_sim.data.partition import dirichlet
from odt_sim.data.sources import digits

_STREAM = 15

PROPERTIES = {
    "even": (0, 2, 4, 6, 8),
    "prime": (2, 3, 5, 7),
    "above four": (5, 6, 7, 8, 9),
    "with a closed loop": (0, 4, 6, 8, 9),
}
"""The digits with each property, in the order of the labels."""


@names_arguments
def digit_properties(users: int = 20, seed: int = 0) -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits with four labels each: even, prime, above four, with a closed loop.

    The digits have no writer ids, so the users are synthetic: each prefers some digits, by a Dirichlet distribution of
    concentration 1, and has at least ten images.

    Args:
        users: The number of users.
        seed: The seed of the users' digits.

    Returns:
        `x` `[1797, 8, 8, 1]` float32 in 0..1, `y` `[1797, 4]` float32, 1 where the property of `PROPERTIES` holds.

    Raises:
        ConfigurationError: A setting is out of range.
        DataError: There are too many users.
    """
    drawn(_STREAM, seed, users=(users, 1))
    bunch = digits()
    written = only(bunch.y, "digits", "")
    owners = np.empty(len(written), np.int64)
    for user, images in enumerate(dirichlet(bunch, users, seed, alpha=1.0)):
        owners[images] = user
    y = np.array([np.isin(written, members) for members in PROPERTIES.values()], np.float32).T
    return check(Dataset(f"digit_properties seed={seed}", bunch.x, y, owners))
