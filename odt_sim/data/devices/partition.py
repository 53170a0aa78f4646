"""Partitions of a data set over devices.

Each function returns one int64 array of example indices for each device. The arrays are disjoint and depend only on the
data and the seed. All functions except `by_user` use every example.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import Range, check_value, fits
from odt_sim.data.dataset import Dataset, Indices
from odt_sim.data.devices.split import IndexLists
from odt_sim.errors import ConfigurationError, DataError

_STREAM = 1  # separates these random numbers from those of the splits
_MAX_REDRAWS = 300


def iid(dataset: Dataset, devices: int | None, seed: int) -> IndexLists:
    """Distribute the examples evenly and at random.

    Raises:
        DataError: There are fewer examples than devices.
    """
    devices, examples = _required(devices), len(dataset.x)
    if examples < devices:
        raise DataError(
            f"data {dataset.name}: expected at least one example for each of {devices} devices, found "
            f"{examples}; choose fewer devices"
        )
    owner = np.empty(examples, np.int64)
    owner[_generator(seed).permutation(examples)] = np.arange(examples) * devices // examples
    return IndexLists.grouped(owner, devices)


def dirichlet(dataset: Dataset, devices: int | None, seed: int, *, alpha: float, min_examples: int = 10) -> IndexLists:
    """Skew labels and quantities: device j gets the share `p_kj` of class k, with `p_k ~ Dirichlet(alpha * 1)`.

    This is the variant of Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", ICML 2019,
    section 4. (Hsu et al. 2019 draw each device's mix of classes, and all devices get equally many examples.) Only the
    shares of devices with too few examples are drawn again, so that the draw ends even for thousands of devices.

    Args:
        dataset: The data, with class labels.
        devices: The number of devices.
        seed: The seed.
        alpha: The concentration, above 0: near 0 a device has few classes, 100 is nearly IID.
        min_examples: The smallest number of examples on a device.

    Raises:
        DataError: The data has no labels, or no draw gives each device `min_examples` examples.
    """
    labels = dataset.labels()
    return _dirichlet(dataset.name, labels, _required(devices), seed, alpha, min_examples)


def quantity_skew(
    dataset: Dataset, devices: int | None, seed: int, *, alpha: float, min_examples: int = 10
) -> IndexLists:
    """Skew quantities only: device j gets the share `q_j` of the shuffled examples, with `q ~ Dirichlet(alpha * 1)`.

    Li et al., "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022, section IV-D. Shares of
    devices with too few examples are drawn again, as in `dirichlet`.

    Args:
        dataset: The data.
        devices: The number of devices.
        seed: The seed.
        alpha: The concentration, above 0: near 0 few devices have nearly all examples, 100 is nearly even.
        min_examples: The smallest number of examples on a device.

    Raises:
        DataError: No draw gives each device `min_examples` examples.
    """
    one_class = np.zeros(len(dataset.x), np.int32)
    return _dirichlet(dataset.name, one_class, _required(devices), seed, alpha, min_examples)


def pathological(dataset: Dataset, devices: int | None, seed: int, *, classes_per_device: int) -> IndexLists:
    """Give each device examples of exactly `classes_per_device` classes.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, section
    3, sort by label, cut shards of equal size and deal `classes_per_device` shards to each device. Here each shard has
    one class, and a device's shards have different classes; larger classes are cut into more shards.

    Args:
        dataset: The data, which needs class labels.
        devices: The number of devices.
        seed: The seed.
        classes_per_device: Number of classes on each device, at least 1.

    Raises:
        DataError: The data has no labels, or its classes cannot be dealt so that all are used.
    """
    devices, labels = _required(devices), dataset.labels()
    present, sizes = np.unique(labels, return_counts=True)
    shards = _shard_counts(dataset.name, sizes, devices, classes_per_device)
    generator = _generator(seed)
    holders = _deal(shards, devices, classes_per_device, generator)
    owner = np.empty(len(labels), np.int64)
    for label, held_by in zip(present, holders, strict=True):
        examples = generator.permutation(np.flatnonzero(labels == label))
        owner[examples] = held_by[np.arange(len(examples)) * len(held_by) // len(examples)]
    return IndexLists.grouped(owner, devices)


def by_user(dataset: Dataset, devices: int | None, seed: int) -> IndexLists:
    """Make each user of the data a device, in the order of the ids; text ids sort as text, "10" before "2".

    Args:
        dataset: The data, with `users`.
        devices: The number of users to draw at random; None for all.
        seed: The seed of the draw.

    Raises:
        DataError: The data has no users, or fewer than `devices`.
    """
    if dataset.users is None:
        raise DataError(
            f"data {dataset.name}: has no user ids; set their column or array (data.users), or choose another partition"
        )
    ids, user = np.unique(dataset.users, return_inverse=True)
    devices = len(ids) if devices is None else _required(devices)
    if devices > len(ids):
        raise DataError(
            f"data {dataset.name}: expected at most {len(ids)} devices, one for each user, found {devices}; "
            f"set fleet.devices to at most {len(ids)}, or to null for all"
        )
    chosen = np.sort(_generator(seed).permutation(len(ids))[:devices])
    device = np.full(len(ids), -1, np.int64)
    device[chosen] = np.arange(devices)
    return IndexLists.grouped(device[user], devices)


def _required(devices: int | None) -> int:
    if devices is None or devices < 1:
        raise ConfigurationError(
            f"fleet.devices: expected at least 1, found {'null' if devices is None else devices}; "
            "only partition=by_user allows null"
        )
    return devices


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, _STREAM])


def _dirichlet(
    name: str, labels: NDArray[np.int32], devices: int, seed: int, alpha: float, min_examples: int
) -> IndexLists:
    check_value("partition.alpha", float, alpha, Range(above=0))
    check_value("partition.min_examples", int, min_examples)
    generator = _generator(seed)
    classes, label, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    counts = _draw_counts(name, sizes, devices, alpha, min_examples, generator)
    order = generator.permutation(len(labels))
    order = order[np.argsort(label[order], kind="stable")]  # class by class, shuffled within each class
    owner = np.empty(len(labels), np.int64)
    owner[order] = np.repeat(np.tile(np.arange(devices), len(classes)), counts.ravel())
    return IndexLists.grouped(owner, devices)


def _draw_counts(
    name: str, sizes: Indices, devices: int, alpha: float, min_examples: int, generator: np.random.Generator
) -> Indices:
    """Return the number of examples of each class on each device, `[classes, devices]`.

    A Dirichlet vector is a normalized vector of independent Gamma variables, so one device's shares can be redrawn alone.
    """
    log_gamma = _draw_log_gamma(generator, alpha, (len(sizes), devices))
    for _ in range(_MAX_REDRAWS if sizes.sum() >= devices * min_examples else 0):
        shares = np.exp(log_gamma - log_gamma.max(axis=1, keepdims=True))
        ends = np.cumsum(shares, axis=1)
        ends = np.rint(ends / ends[:, -1:] * sizes[:, np.newaxis]).astype(np.int64)
        counts: Indices = np.diff(ends, axis=1, prepend=0)
        short = np.flatnonzero(counts.sum(axis=0) < min_examples)
        if not len(short):
            return counts
        log_gamma[:, short] = _draw_log_gamma(generator, alpha, (len(sizes), len(short)))
    raise DataError(
        f"data {name}: no draw with alpha {alpha} gives each of {devices} devices {min_examples} of {sizes.sum()} examples; "
        "choose fewer devices, a larger alpha or a smaller min_examples"
    )


def _draw_log_gamma(generator: np.random.Generator, alpha: float, shape: tuple[int, int]) -> NDArray[np.float64]:
    # Gamma(a) = Gamma(a + 1) * U^(1/a) (Marsaglia and Tsang 2000, section 6); the logarithm does not underflow.
    uniform = 1 - generator.random(shape)
    logs: NDArray[np.float64] = np.log(generator.gamma(alpha + 1, size=shape)) + np.log(uniform) / alpha
    return logs


def _shard_counts(name: str, sizes: Indices, devices: int, per_device: int) -> list[int]:
    """Return the number of shards of each class, proportional to its size by D'Hondt's method."""
    limits = np.minimum(sizes, devices)  # a shard has at least one example, and a device at most one shard of a class
    if not fits(per_device, int, Range(least=1, most=len(sizes))):
        raise DataError(f"partition.classes_per_device: expected 1..{len(sizes)} for data {name}, found {per_device!r}")
    total = devices * per_device
    if total < len(sizes):
        raise DataError(
            f"data {name}: {devices} devices of {per_device} classes cannot cover all {len(sizes)} classes; "
            "choose more devices or a larger classes_per_device"
        )
    if total > limits.sum():
        raise DataError(
            f"data {name}: has too few examples per class for {devices} devices of {per_device} classes; "
            "choose fewer devices or a smaller classes_per_device"
        )
    shards = [1] * len(sizes)
    largest = [(-int(size) / 2, label) for label, size in enumerate(sizes) if limits[label] > 1]
    heapq.heapify(largest)
    for _ in range(total - len(sizes)):
        _, label = heapq.heappop(largest)
        shards[label] += 1
        if shards[label] < limits[label]:
            heapq.heappush(largest, (-int(sizes[label]) / (shards[label] + 1), label))
    return shards


def _deal(shards: list[int], devices: int, per_device: int, generator: np.random.Generator) -> list[Indices]:
    """Return the devices that get a shard of each class; each device gets `per_device` different classes.

    Each device gets the classes with the most remaining shards, with ties broken at random. This never leaves too few
    different classes for a later device (Gale and Ryser 1957).
    """
    left = np.array(shards, np.float64)
    ties = generator.random((devices, len(shards)))  # below 1, so that it only breaks ties
    held = np.zeros((devices, len(shards)), np.bool_)
    for device in generator.permutation(devices).tolist():
        chosen = np.argpartition(-(left + ties[device]), per_device - 1)[:per_device]
        left[chosen] -= 1
        held[device, chosen] = True
    return [np.flatnonzero(column) for column in held.T]
