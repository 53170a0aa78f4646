"""A data set spread over a fleet: index lists over shared arrays, never copies."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from odt_sim.data.dataset import Array, Dataset, Indices
from odt_sim.data.split import Method, check_fractions, check_gap, check_method, split, split_by_block
from odt_sim.data.standardize import standardized
from odt_sim.errors import DataError

Partition = Callable[[Dataset, int | None, int], list[Indices]]
"""Spreads a data set over a number of devices, with a seed: one index array for each device."""


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The examples of all devices, in compressed rows: a million devices are two arrays.

    Attributes:
        name: The data set's name.
        x: `[examples, ...]` inputs of the whole data set.
        y: `[examples, ...]` targets.
        classes: The number of classes; None for regression.
        indices: `[used examples]` int64, device by device: the train, then the validation, then the test examples.
        offsets: `[devices, 4]` int64, where in `indices` a device's three parts start, and where the last one ends.
        spread: How the data was spread and split, such as `dirichlet alpha=0.3 validation=0.2 test=0.2`; for records.
    """

    name: str
    x: Array
    y: Array
    classes: int | None
    indices: Indices
    offsets: Indices
    spread: str = ""

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.offsets)

    @property
    def train_sizes(self) -> Indices:
        """`[devices]`: how many train examples each device has."""
        return self.offsets[:, 1] - self.offsets[:, 0]

    def train(self, device: int) -> Indices:
        """Returns a view of the indices of a device's train examples."""
        return self._part(device, 0)

    def validation(self, device: int) -> Indices:
        """Returns a view of the indices of a device's validation examples."""
        return self._part(device, 1)

    def test(self, device: int) -> Indices:
        """Returns a view of the indices of a device's test examples."""
        return self._part(device, 2)

    def _part(self, device: int, part: int) -> Indices:
        return self.indices[self.offsets[device, part] : self.offsets[device, part + 1]]

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays by name, to be put in shared memory; `from_arrays` takes them back without a copy."""
        return {"x": self.x, "y": self.y, "indices": self.indices, "offsets": self.offsets}

    @classmethod
    def from_arrays(cls, name: str, classes: int | None, arrays: Mapping[str, Array]) -> "FederatedData":
        """Returns the data that `arrays()` came from; the arrays may be read-only."""
        return cls(name, arrays["x"], arrays["y"], classes, arrays["indices"], arrays["offsets"])


def federate(
    dataset: Dataset,
    partition: Partition,
    devices: int | None,
    seed: int,
    *,
    validation: float = 0.2,
    test: float = 0.2,
    method: Method = "stratified",
    gap: int = 1,
) -> FederatedData:
    """Spreads a data set over devices and splits each device's examples.

    Args:
        dataset: The data.
        partition: How to spread it.
        devices: How many devices; None lets a partition by natural users decide.
        seed: The seed of the partition and the splits.
        validation: The fraction of a device's examples to choose hyper-parameters on.
        test: The fraction to evaluate on.
        method: `stratified` (each part has about the same mix of labels, or of values to regress), `random`, or `block`
            (each sequence's beginning, middle and end).
        gap: The examples that `block` leaves out at each border between two parts.

    Raises:
        DataError: The partition cannot be made, uses an example twice, or leaves a device fewer than 3 examples, or no
            sequence that is long enough for blocks.
        ConfigurationError: A setting is out of range.
    """
    check_fractions(validation, test)
    check_method(method)
    check_gap(gap)
    parts = partition(dataset, devices, seed)
    _check_partition(dataset, parts, devices)
    strata = _strata(dataset) if method == "stratified" else None

    def pieces(device: int, part: Indices) -> tuple[Indices, Indices, Indices]:
        if method == "block":
            return split_by_block(part, dataset.sequences, device, validation=validation, test=test, gap=gap)
        return split(part, strata, seed, device, validation=validation, test=test)

    found = [pieces(device, part) for device, part in enumerate(parts)]
    sizes = np.array([[len(piece) for piece in of_device] for of_device in found], np.int64)
    ends = np.cumsum(sizes).reshape(sizes.shape)
    offsets = np.concatenate([ends[:, 2:] - sizes.sum(axis=1, keepdims=True), ends], axis=1)
    indices = np.concatenate([piece for of_device in found for piece in of_device])
    how = {"stratified": "", "random": " split=random", "block": f" split=block gap={gap}"}[method]
    spread = f"{_described(partition)} validation={validation} test={test}{how}"
    x = standardized(dataset.x, indices, offsets) if dataset.standardize else dataset.x
    return FederatedData(dataset.name, x, dataset.y, dataset.classes, indices, offsets, spread)


def _described(partition: Partition) -> str:
    """Returns a partition's name and settings."""
    function = partition.func if isinstance(partition, functools.partial) else partition
    settings = partition.keywords if isinstance(partition, functools.partial) else {}
    name = getattr(function, "__name__", type(function).__name__)
    return " ".join([name, *(f"{key}={value}" for key, value in sorted(settings.items()))])


def _check_partition(dataset: Dataset, parts: list[Indices], devices: int | None) -> None:
    where = f"the partition of data {dataset.name}"
    if not parts or (devices is not None and len(parts) != devices):
        raise DataError(
            f"{where}: made {len(parts)} devices, expected {devices or 'at least 1'}; correct the partition"
        )
    used = np.concatenate(parts)
    if len(used) and (used.min() < 0 or used.max() >= len(dataset.x)):
        raise DataError(f"{where}: has indices {used.min()}..{used.max()}, expected 0..{len(dataset.x) - 1}")
    times = np.bincount(used, minlength=1)
    if times.max() > 1:
        raise DataError(f"{where}: uses example {times.argmax()} {times.max()} times, expected at most once")


def _strata(dataset: Dataset) -> Array | None:
    """What each device's parts shall have alike: the label or, in regression, the value; None for what has no order."""
    if dataset.has_labels:
        return dataset.labels()
    return dataset.y if dataset.y.ndim == 1 else None
