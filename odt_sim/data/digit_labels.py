"""Handwritten digits with several labels each."""

import numpy as np

from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check

PROPERTIES = {
    "even": (0, 2, 4, 6, 8),
    "prime": (2, 3, 5, 7),
    "above four": (5, 6, 7, 8, 9),
    "with a closed loop": (0, 4, 6, 8, 9),
}
"""The digits that have each property, in the order of the labels."""


def digit_properties() -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits with four labels each: even, prime, above four, with a closed loop.

    Returns:
        `x` `[1797, 8, 8, 1]` float32 in 0..1, `y` `[1797, 4]` float32, 1 where the property of `PROPERTIES` holds.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    y = np.array([np.isin(bunch.target, members) for members in PROPERTIES.values()], np.float32).T
    return check(Dataset("digit_properties", bunch.images[..., np.newaxis] / 16, y))
