"""Drifts: differences between groups of devices beyond label skew. Each function returns modified copies of the data.

Devices are assigned to groups of equal size at random. Rotations follow Ghosh et al., "An Efficient Framework for
Clustered Federated Learning", NeurIPS 2020, section 6.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from odt_sim.data.dataset import Array, Indices
from odt_sim.data.devices.federated import FederatedData
from odt_sim.data.store.columns import is_mapped, only
from odt_sim.errors import ConfigurationError, DataError
from odt_sim.settings import General

_STREAM = 4  # separates these random numbers from those of partitions, splits and sources

Drift = Callable[[FederatedData, int], FederatedData]
"""Changes the examples of each device, with a seed."""


def none(data: FederatedData, seed: int) -> FederatedData:
    """Return the data unchanged."""
    return data


def rotation(data: FederatedData, seed: int, *, degrees: Sequence[float] = (0, 90, 180, 270)) -> FederatedData:
    """Rotate each group's images counterclockwise by the group's angle.

    Multiples of 90 degrees move pixels; other angles interpolate linearly and fill corners with 0.

    Args:
        data: Square images `[examples, side, side, channels]`.
        seed: The seed of the groups.
        degrees: The groups' angles.

    Raises:
        DataError: The examples are not square images.
        ConfigurationError: There is no angle.
    """
    x = _images(data).copy()
    if x.shape[1] != x.shape[2]:
        raise DataError(f"data {data.name}: images are {x.shape[1]} by {x.shape[2]}, expected square images to rotate")
    for angle, rows in zip(degrees, _rows_of_groups(data, len(degrees), seed), strict=True):
        x[rows] = _rotated(x[rows], angle)
    return replace(data, x=x, scales={}, spread=f"{data.spread} rotation={_listed(degrees)}")


def colour(
    data: FederatedData, seed: int, *, colours: Sequence[Sequence[float]] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
) -> FederatedData:
    """Multiply each group's images by the group's colour; grey images become coloured.

    Args:
        data: Images `[examples, height, width, 1 or 3]`.
        seed: The seed of the groups.
        colours: The groups' red, green and blue, each in 0..1.

    Raises:
        DataError: The examples are not images of one or three channels.
        ConfigurationError: There is no colour, or one is not three numbers in 0..1.
    """
    images = _images(data)
    if images.shape[3] not in (1, 3):
        raise DataError(f"data {data.name}: images have {images.shape[3]} channels, expected 1 or 3 for colouring")
    if any(len(colour) != 3 or not 0 <= min(colour) <= max(colour) <= 1 for colour in colours):
        raise ConfigurationError(f"drift.colours: expected triples of numbers in 0..1, found {_listed(colours)}")
    x = np.broadcast_to(images, (*images.shape[:3], 3)).copy()
    for rgb, rows in zip(colours, _rows_of_groups(data, len(colours), seed), strict=True):
        x[rows] *= np.asarray(rgb, np.float32)
    return replace(data, x=x, scales={}, spread=f"{data.spread} colour={_listed(colours)}")


def label_permutation(data: FederatedData, seed: int, *, groups: int = 4) -> FederatedData:
    """Permute the classes of each group's labels; the first group keeps its labels.

    Args:
        data: Examples with one class label each.
        seed: The seed of the permutations and the groups.
        groups: The number of groups.

    Raises:
        DataError: The data has no class labels.
        ConfigurationError: There is no group.
    """
    targets = only(data.y, f"data {data.name}: y", "choose another drift")
    one_hot = targets.dtype == np.float32
    if data.classes is None or isinstance(data.classes, Mapping) or targets.ndim != 1 + one_hot:
        raise DataError(f"data {data.name}: expected one class label for each example; choose another drift")
    General(seed)
    generator = np.random.default_rng([seed, _STREAM, 1])
    y = targets.copy()
    for group, rows in enumerate(_rows_of_groups(data, groups, seed)):
        permutation = generator.permutation(data.classes) if group else np.arange(data.classes)
        y[rows] = y[rows][:, np.argsort(permutation)] if one_hot else permutation[y[rows]]
    return replace(data, y=y, class_names=(), spread=f"{data.spread} label_permutation={groups}")


def _rows_of_groups(data: FederatedData, groups: int, seed: int) -> list[Indices]:
    """Return the examples of each group's devices."""
    if groups < 1:
        raise ConfigurationError("drift: expected at least one group, found none; add one")
    General(seed)
    order = np.random.default_rng([seed, _STREAM]).permutation(data.devices)
    members = [np.sort(order[group::groups]) for group in range(groups)]
    empty = np.zeros(0, np.int64)
    return [
        np.concatenate([empty, *(data.indices[data.offsets[d, 0] : data.offsets[d, 3]] for d in devices)])
        for devices in members
    ]


def _images(data: FederatedData) -> Array:
    x = only(data.x, f"data {data.name}: x", "choose another drift")
    if x.ndim != 4 or x.dtype != np.float32:
        raise DataError(
            f"data {data.name}: x is {x.dtype} {list(x.shape)}, expected images "
            "[examples, height, width, channels]; choose another drift"
        )
    if is_mapped(x):
        raise DataError(
            f"data {data.name}: is stored on disk, but a drift copies all images into memory; choose drift=none"
        )
    return x


def _rotated(images: Array, degrees: float) -> Array:
    if degrees % 90 == 0:
        return np.rot90(images, int(degrees // 90), axes=(1, 2))
    from scipy.ndimage import rotate

    return np.asarray(rotate(images, degrees, axes=(2, 1), reshape=False, order=1))


def _listed(values: Sequence[object]) -> str:
    return str([list(value) if isinstance(value, Sequence) else value for value in values]).replace(" ", "")
