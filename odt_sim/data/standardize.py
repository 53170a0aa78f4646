"""Inputs standardized by each device for itself, from its training examples: no device knows another's, or the test's."""

import numpy as np

from odt_sim.data.dataset import Array, Indices


def standardized(x: Array, indices: Indices, offsets: Indices) -> Array:
    """Returns a copy of `x` in which each device's training examples have mean 0 and standard deviation 1 in every feature.

    Validation and test examples are brought to the same scale. A feature that is the same in all training examples of a
    device is only centered there. Examples of no device stay as they are.

    Args:
        x: `[examples, ...]` float32 inputs.
        indices: `[used examples]`, device by device: the train, then the other examples.
        offsets: `[devices, 4]`, where in `indices` a device's three parts start, and where the last one ends.
    """
    after = x.copy()
    for start, validation, _, end in offsets:
        train, own = x[indices[start:validation]], indices[start:end]
        varies = np.ptp(train, axis=0) > 0
        center = np.where(varies, train.mean(axis=0, dtype=np.float64), train[0])
        deviation = np.where(varies, train.std(axis=0, dtype=np.float64), 1.0)
        after[own] = (x[own] - center) / deviation
    return after
