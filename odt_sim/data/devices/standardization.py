"""Standardization of each device's inputs by its own training examples."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.dataset import Indices
from odt_sim.data.store.columns import Array, Columns, Rows, arrays_of


class Scale(NamedTuple):
    """Mean and deviation that standardize a float input: `(input - mean) / deviation`.

    Attributes:
        mean: `[devices, ...]` float64 over a device's training examples; exactly the value of a feature that is
            constant there.
        deviation: `[devices, ...]` float64 over the same examples; 1 for a feature that is constant there.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def of(self, device: int) -> "Scale":
        """Return one device's mean and deviation, of the shape of an example."""
        return Scale(self.mean[device], self.deviation[device])


def scales(x: Rows, indices: Indices, offsets: Indices) -> dict[str, Scale]:
    """Return the scale of each float input by name.

    Args:
        x: `[examples, ...]` inputs.
        indices: `[used examples]`, see `FederatedData`.
        offsets: `[devices, 4]`, see `FederatedData`.
    """
    return {name: _scale(array, indices, offsets) for name, array in arrays_of(x).items() if array.dtype.kind == "f"}


def standardized(x: Rows, by: Mapping[str, Scale], indices: Indices, offsets: Indices) -> Rows:
    """Return a copy of `x` in which each feature has mean 0 and deviation 1 over each device's training examples.

    The device's other examples are scaled by the same values. A feature that is constant in training is only centered.

    Args:
        x: `[examples, ...]` inputs.
        by: The scales of the inputs to standardize, by name.
        indices: `[used examples]`, see `FederatedData`.
        offsets: `[devices, 4]`, see `FederatedData`.
    """
    arrays = {
        name: _standardized(array, by[name], indices, offsets) if name in by else array
        for name, array in arrays_of(x).items()
    }
    return Columns(x.names, tuple(arrays.values())) if isinstance(x, Columns) else arrays[""]


def _scale(x: Array, indices: Indices, offsets: Indices) -> Scale:
    mean, deviation = (np.empty((len(offsets), *x.shape[1:])) for _ in range(2))
    for device, (start, validation, _, _) in enumerate(offsets):
        train = x[indices[start:validation]]
        varies = np.ptp(train, axis=0) > 0
        mean[device] = np.where(varies, train.mean(axis=0, dtype=np.float64), train[0])
        deviation[device] = np.where(varies, train.std(axis=0, dtype=np.float64), 1.0)
    return Scale(mean, deviation)


def _standardized(x: Array, by: Scale, indices: Indices, offsets: Indices) -> Array:
    scaled = x.copy()
    for device, (start, _, _, end) in enumerate(offsets):
        rows, scale = indices[start:end], by.of(device)
        scaled[rows] = (x[rows] - scale.mean) / scale.deviation
    return scaled
