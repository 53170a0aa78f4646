"""Drifts: what differs between groups of devices beside their mix of labels. Each changes copies, never the data it is given.

Devices are dealt to the groups at random, equally many to each (give or take one). Rotations are those by which Ghosh et al.,
"An Efficient Framework for Clustered Federated Learning", NeurIPS 2020, section 6, make clusters of devices.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from odt_sim.data.dataset import Array, Indices
from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError, DataError

_STREAM = 4  # keeps these random numbers apart from those of partitions, splits and sources

Drift = Callable[[FederatedData, int], FederatedData]
"""Changes the examples of each device, with a seed."""


def none(data: FederatedData, seed: int) -> FederatedData:
    """Returns the data as it is."""
    return data


def rotation(data: FederatedData, seed: int, *, degrees: Sequence[float] = (0, 90, 180, 270)) -> FederatedData:
    """Turns each group's images counterclockwise by an angle of its own.

    By right angles pixels only change places; other angles interpolate linearly, and 0 comes in at the corners.

    Args:
        data: Square images `[examples, side, side, channels]`.
        seed: Decides which device is in which group.
        degrees: The groups' angles.

    Raises:
        DataError: The data holds no square images.
        ConfigurationError: There is no angle.
    """
    _check_images(data)
    if data.x.shape[1] != data.x.shape[2]:
        raise DataError(
            f"data {data.name}: images are {data.x.shape[1]} by {data.x.shape[2]}, expected squares to rotate"
        )
    x = data.x.copy()
    for angle, rows in zip(degrees, _rows_of_groups(data, len(degrees), seed), strict=True):
        x[rows] = _rotated(x[rows], angle)
    return replace(data, x=x, spread=f"{data.spread} rotation={_listed(degrees)}")


def colour(
    data: FederatedData, seed: int, *, colours: Sequence[Sequence[float]] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
) -> FederatedData:
    """Multiplies each group's images by a colour of its own; grey images become coloured.

    Args:
        data: Images `[examples, height, width, 1 or 3]`.
        seed: Decides which device is in which group.
        colours: The groups' red, green and blue, each 0 to 1.

    Raises:
        DataError: The data holds no images of one or three channels.
        ConfigurationError: There is no colour, or one is not three numbers of 0 to 1.
    """
    _check_images(data)
    if data.x.shape[3] not in (1, 3):
        raise DataError(f"data {data.name}: images have {data.x.shape[3]} channels, expected 1 or 3 to colour")
    if any(len(one) != 3 or not 0 <= min(one) <= max(one) <= 1 for one in colours):
        raise ConfigurationError(f"drift.colours is {_listed(colours)}, expected triples of numbers of 0 to 1")
    x = np.broadcast_to(data.x, (*data.x.shape[:3], 3)).copy()
    for one, rows in zip(colours, _rows_of_groups(data, len(colours), seed), strict=True):
        x[rows] *= np.asarray(one, np.float32)
    return replace(data, x=x, spread=f"{data.spread} colour={_listed(colours)}")


def label_permutation(data: FederatedData, seed: int, *, groups: int = 4) -> FederatedData:
    """Gives each group a permutation of the classes of its own: the same input has another label there.

    The first group keeps its labels.

    Args:
        data: Examples with a class label each.
        seed: Decides the permutations, and which device is in which group.
        groups: How many groups.

    Raises:
        DataError: The data has no class labels.
        ConfigurationError: There is no group.
    """
    one_hot = data.y.dtype == np.float32
    if data.classes is None or data.y.ndim != 1 + one_hot:
        raise DataError(f"data {data.name}: each example needs one class label to permute; choose another drift")
    generator = np.random.default_rng([seed, _STREAM, 1])
    y = data.y.copy()
    for group, rows in enumerate(_rows_of_groups(data, groups, seed)):
        permutation = generator.permutation(data.classes) if group else np.arange(data.classes)
        y[rows] = y[rows][:, np.argsort(permutation)] if one_hot else permutation[y[rows]]
    return replace(data, y=y, spread=f"{data.spread} label_permutation={groups}")


def _rows_of_groups(data: FederatedData, groups: int, seed: int) -> list[Indices]:
    """Returns the examples of each group's devices."""
    if groups < 1:
        raise ConfigurationError("drift: has no group; name at least one")
    order = np.random.default_rng([seed, _STREAM]).permutation(data.devices)
    chosen = [np.sort(order[group::groups]) for group in range(groups)]
    none_of_them = np.zeros(0, np.int64)
    return [
        np.concatenate([none_of_them, *(data.indices[data.offsets[d, 0] : data.offsets[d, 3]] for d in devices)])
        for devices in chosen
    ]


def _check_images(data: FederatedData) -> None:
    if data.x.ndim != 4 or data.x.dtype != np.float32:
        raise DataError(
            f"data {data.name}: x is {data.x.dtype} {list(data.x.shape)}, expected images "
            "[examples, height, width, channels]; choose another drift"
        )


def _rotated(images: Array, degrees: float) -> Array:
    if degrees % 90 == 0:
        return np.rot90(images, int(degrees // 90), axes=(1, 2))
    from scipy.ndimage import rotate

    return np.asarray(rotate(images, degrees, axes=(2, 1), reshape=False, order=1))


def _listed(values: Sequence[object]) -> str:
    return str([list(value) if isinstance(value, Sequence) else value for value in values]).replace(" ", "")
