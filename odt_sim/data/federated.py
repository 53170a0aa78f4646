"""A data set spread over a fleet: index lists over shared arrays, never copies."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from odt_sim.data.dataset import Array, Dataset, Indices, read_only
from odt_sim.data.digest import digest_of
from odt_sim.data.rows import Rows
from odt_sim.data.split import part_sizes, split, split_by_block
from odt_sim.data.standardize import standardized
from odt_sim.errors import DataError
from odt_sim.settings import Split

SPLIT_AT_ONCE = 10_000
"""Devices, at most, whose examples are split when the data is spread, 0.1 ms each; in larger fleets when a device runs."""

Partition = Callable[[Dataset, int | None, int], Sequence[Indices]]
"""Spreads a data set over a number of devices, with a seed: one index array for each device."""


Parts = tuple[Indices, Indices, Indices]
"""A device's train, validation and test examples."""


@dataclass(frozen=True, eq=False)
class LateSplit:
    """How devices' examples are split when they are asked for: what `odt_sim.data.split.split` takes.

    Attributes:
        strata: The label, or the value to regress, of each example as it was before any drift; None for none.
        seed: The seed.
        validation: The fraction to choose hyper-parameters on.
        test: The fraction to evaluate on.
    """

    strata: Array | None
    seed: int
    validation: float
    test: float

    def parts(self, indices: Indices, device: int) -> Parts:
        """Splits a device's examples."""
        return split(indices, self.strata, self.seed, device, validation=self.validation, test=self.test)


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The examples of all devices, in compressed rows: a million devices are two arrays.

    The arrays are read-only views, because all devices of a process share them.

    Attributes:
        name: The data set's name.
        x: `[examples, ...]` inputs of the whole data set.
        y: `[examples, ...]` targets.
        classes: The number of classes; None for regression.
        indices: `[used examples]` int64, device by device: the train, then the validation, then the test examples. Where
            `late` is given, a device's are in the order of the partition.
        offsets: `[devices, 4]` int64, where in `indices` a device's three parts start, and where the last one ends.
        spread: How the data was spread and split, such as `dirichlet alpha=0.3 validation=0.2 test=0.2`; for records.
        late: How a device's examples become its parts; None where they have been split.
        digest: `odt_sim.data.digest.digest_of` the data set, before it was spread and drifted; empty where nobody knows it.
    """

    name: str
    x: Array
    y: Array
    classes: int | None
    indices: Indices
    offsets: Indices
    spread: str = ""
    late: LateSplit | None = None
    digest: str = ""

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for name in ("x", "y", "indices", "offsets"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.offsets)

    @property
    def train_sizes(self) -> Indices:
        """`[devices]`: how many train examples each device has."""
        return self.offsets[:, 1] - self.offsets[:, 0]

    def parts(self, device: int) -> Parts:
        """Returns the indices of a device's train, validation and test examples: views, unless they are split only now."""
        first, second, third, end = self.offsets[device].tolist()
        if self.late:
            return self.late.parts(self.indices[first:end], device)
        return self.indices[first:second], self.indices[second:third], self.indices[third:end]

    def train(self, device: int) -> Indices:
        """Returns the indices of a device's train examples."""
        return self.parts(device)[0]

    def validation(self, device: int) -> Indices:
        """Returns the indices of a device's validation examples."""
        return self.parts(device)[1]

    def test(self, device: int) -> Indices:
        """Returns the indices of a device's test examples."""
        return self.parts(device)[2]


def federate(
    dataset: Dataset,
    partition: Partition,
    devices: int | None,
    seed: int,
    *,
    validation: float = Split.validation,
    test: float = Split.test,
    method: Literal["stratified", "random", "block"] = Split.method,
    gap: int = Split.gap,
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
    Split(method, validation, test, gap)
    rows = Rows.of(partition(dataset, devices, seed))
    _check_partition(dataset, rows, devices)
    late = LateSplit(_strata(dataset) if method == "stratified" else None, seed, validation, test)
    by_block = functools.partial(split_by_block, validation=validation, test=test, gap=gap)
    how = {"stratified": "", "random": " split=random", "block": f" split=block gap={gap}"}[method]
    spread = f"{described(partition)} validation={validation} test={test}{how}"
    digest = digest_of(dataset.x, dataset.y, dataset.users, dataset.sequences)
    if method == "block":
        indices, offsets = _all_parts([by_block(part, dataset.sequences, device) for device, part in enumerate(rows)])
    elif dataset.standardize or len(rows) <= SPLIT_AT_ONCE:
        indices, offsets = _all_parts([late.parts(part, device) for device, part in enumerate(rows)])
    else:
        offsets = _offsets(part_sizes(rows.sizes, validation, test))
        return FederatedData(
            dataset.name, dataset.x, dataset.y, dataset.classes, rows.values, offsets, spread, late, digest
        )
    x = standardized(dataset.x, indices, offsets) if dataset.standardize else dataset.x
    return FederatedData(dataset.name, x, dataset.y, dataset.classes, indices, offsets, spread, digest=digest)


def _all_parts(found: Sequence[Parts]) -> tuple[Indices, Indices]:
    """Returns the indices and offsets of devices that have been split."""
    sizes = np.array([[len(piece) for piece in of_device] for of_device in found], np.int64)
    return np.concatenate([piece for of_device in found for piece in of_device]), _offsets(sizes)


def _offsets(sizes: Indices) -> Indices:
    """Returns `[devices, 4]` where parts of these `[devices, 3]` sizes start, and where the last one of a device ends."""
    ends = np.cumsum(sizes).reshape(sizes.shape)
    return np.concatenate([ends[:, 2:] - sizes.sum(axis=1, keepdims=True), ends], axis=1)


def described(how: Callable[..., Any]) -> str:
    """Returns the name and the settings of a partition or a drift; those of a `functools.partial` alone are known."""
    function = how.func if isinstance(how, functools.partial) else how
    settings = how.keywords if isinstance(how, functools.partial) else {}
    name = getattr(function, "__name__", type(function).__name__)
    return " ".join([name, *(f"{key}={value}" for key, value in sorted(settings.items()))])


def _check_partition(dataset: Dataset, rows: Rows, devices: int | None) -> None:
    where = f"the partition of data {dataset.name}"
    if not len(rows) or (devices is not None and len(rows) != devices):
        raise DataError(f"{where}: made {len(rows)} devices, expected {devices or 'at least 1'}; correct the partition")
    used = rows.values
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
