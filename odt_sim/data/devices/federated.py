"""Data set partitioned over a fleet, as index lists into shared arrays."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from odt_sim._support.checks import check_value
from odt_sim._support.text import counted
from odt_sim._support.user_code import user_code_errors
from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Array, Classes, Dataset, Indices, digest_of, read_only, summarized
from odt_sim.data.devices.split import (
    MIN_EXAMPLES,
    IndexLists,
    Parts,
    check_enough,
    part_sizes,
    split,
    split_as_given,
    split_by_block,
)
from odt_sim.data.devices.standardization import Scale, scales, standardized
from odt_sim.data.store.columns import Rows, arrays_of
from odt_sim.errors import ConfigurationError, DataError
from odt_sim.settings import General, Split

SPLIT_AT_ONCE = 10_000
"""Largest fleet that is split in advance, at 0.1 ms per device; devices of larger fleets are split when they run."""

Partition = Callable[[Dataset, int | None, int], Sequence[Indices]]
"""Distributes a data set over a number of devices, with a seed: one index array for each device."""


Kept = Literal["new", "all"]


@dataclass(frozen=True, eq=False)
class Arrival:
    """Periods in which examples arrive, and the examples available in each round.

    Attributes:
        period: `[examples]` int16, the period of each example, from 0; -1 for examples that no device has.
        periods: The number of periods.
        rounds: The rounds of each period; the last period has no end.
        keep: `new` if a device trains only on the examples of the current period, `all` if it keeps earlier examples.
    """

    period: Array
    periods: int
    rounds: int
    keep: Kept

    def __post_init__(self) -> None:
        """Make the array read-only."""
        object.__setattr__(self, "period", read_only(self.period))

    def at(self, round: int) -> int:
        """Return the period of a round; round 0, before the first round, is in period 0."""
        return min(max(round - 1, 0) // self.rounds, self.periods - 1)

    def train(self, indices: Indices, round: int) -> Indices:
        """Return the given examples that a device trains on in a round."""
        now, arrived = self.at(round), self.period[indices]
        return np.asarray(indices[arrived == now if self.keep == "new" else arrived <= now])

    def test(self, indices: Indices, round: int) -> Indices:
        """Return the given test examples that have arrived by a round."""
        return np.asarray(indices[self.period[indices] <= self.at(round)])

    def of_period(self, indices: Indices, period: int) -> Indices:
        """Return the given examples that arrive in a period."""
        return np.asarray(indices[self.period[indices] == period])


@dataclass(frozen=True, eq=False)
class DeferredSplit:
    """Split of a device's examples on demand, by `odt_sim.data.devices.split.split`.

    Attributes:
        strata: The label, or the value to regress, of each example before any drift; None for a random split.
        seed: The seed.
        validation: The fraction for model selection.
        test: The fraction for reported results.
    """

    strata: Array | None
    seed: int
    validation: float
    test: float

    def parts(self, indices: Indices, device: int) -> Parts:
        """Split a device's examples."""
        return split(indices, self.strata, self.seed, device, validation=self.validation, test=self.test)


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The examples of all devices, as index lists in two arrays.

    All arrays are read-only, because the devices of a process share them.

    Attributes:
        name: The data set's name.
        x: `[examples, ...]` inputs of the whole data set; several inputs are `Columns`.
        y: `[examples, ...]` targets; several targets are `Columns`.
        classes: The number of classes, for several targets a mapping by name; None for regression.
        indices: `[used examples]` int64, device by device: train, validation, then test examples. With `deferred`, a
            device's examples are in the order of the partition.
        offsets: `[devices, 4]` int64, the starts of a device's three parts in `indices`, and the end of the last.
        spread: The partition and the split in words, such as `dirichlet alpha=0.3 validation=0.2 test=0.2`.
        deferred: The split of devices that are split on demand; None if all have been split.
        digest: The digest of the data set before partition and drift; empty if unknown.
        users: `[devices]` the user id of each device; None unless all examples of a device are of one user.
        times: `[examples]` numbers, the time of each example; None if unknown.
        arrival: The periods in which examples arrive; None if all are available from the first round on.
        scales: The mean and deviation by which each device has standardized its inputs, by input name, empty for a
            single input. Empty if the inputs are not standardized, or have changed since, as by a drift of images.
        class_names: The name of each class; empty if unknown.
    """

    name: str
    x: Rows
    y: Rows
    classes: Classes
    indices: Indices
    offsets: Indices
    spread: str = ""
    deferred: DeferredSplit | None = None
    digest: str = ""
    users: Array | None = None
    times: Array | None = None
    arrival: Arrival | None = None
    scales: Mapping[str, Scale] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for name in ("x", "y", "indices", "offsets", "users", "times"):
            if (array := getattr(self, name)) is not None:
                object.__setattr__(self, name, read_only(array))

    def __repr__(self) -> str:
        """Return one line, without the arrays."""
        examples = summarized(len(self.indices), self.x, self.classes)
        return f"FederatedData({self.name}: {counted(self.devices, 'device')}, {examples}, {self.spread})"

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.offsets)

    def arrived(self, device: int, round: int) -> Parts:
        """Return the indices of a device's train, validation and test examples in a round."""
        parts = self.parts(device)
        if self.arrival is None:
            return parts
        train, validation, test = parts
        return (
            self.arrival.train(train, round),
            self.arrival.train(validation, round),
            self.arrival.test(test, round),
        )

    @property
    def train_sizes(self) -> Indices:
        """`[devices]`: the number of each device's training examples."""
        return self.offsets[:, 1] - self.offsets[:, 0]

    def parts(self, device: int) -> Parts:
        """Return the indices of a device's train, validation and test examples."""
        first, second, third, end = self.offsets[device].tolist()
        if self.deferred:
            return self.deferred.parts(self.indices[first:end], device)
        return self.indices[first:second], self.indices[second:third], self.indices[third:end]

    def train(self, device: int) -> Indices:
        """Return the indices of a device's training examples."""
        return self.parts(device)[0]

    def validation(self, device: int) -> Indices:
        """Return the indices of a device's validation examples."""
        return self.parts(device)[1]

    def test(self, device: int) -> Indices:
        """Return the indices of a device's test examples."""
        return self.parts(device)[2]


def federate(
    dataset: Dataset,
    partition: Partition,
    devices: int | None,
    seed: int,
    *,
    validation: float = Split.validation,
    test: float = Split.test,
    method: Literal["stratified", "random", "block", "given"] = Split.method,
    gap: int = Split.gap,
) -> FederatedData:
    """Partition a data set over devices and split each device's examples.

    Args:
        dataset: The data; it is converted by `odt_sim.data.checks.dataset_checks.check`.
        partition: Distributes the examples over devices.
        devices: The number of devices; None for the number that a partition by natural users determines.
        seed: The seed of the partition and the splits.
        validation: The fraction of a device's examples for model selection.
        test: The fraction for reported results.
        method: `stratified` (each part has about the same mix of labels or regression targets), `random`, `block` (the
            beginning, middle and end of each sequence, by `dataset.times` if it has them), or `given` (`dataset.parts`).
        gap: The number of examples that `block` drops between two parts.

    Raises:
        DataError: Lengths differ, a value is not a finite number, a label is out of range, or the partition is invalid,
            uses an example twice, or gives a device too few examples for its parts.
        ConfigurationError: A setting is out of range, or the partition lacks a setting or fails.
    """
    Split(method, validation, test, gap)
    General(seed)
    check_value("fleet.devices", int | None, devices)
    dataset = check(dataset)
    lists = _partitioned(dataset, partition, devices, seed)
    spread = f"{described(partition)} {_described_split(method, validation, test, gap)}"
    spread += " standardized" if dataset.standardize else ""
    given_parts = dataset.parts if method == "given" else None
    digest = digest_of(dataset.x, dataset.y, dataset.users, dataset.sequences, dataset.times, given_parts)
    users = _users(dataset, lists)
    if method == "given" and dataset.parts is None:
        raise DataError(
            f"data {dataset.name}: has no predefined split; choose another split.method, such as stratified"
        )
    if method != "given":
        _check_sizes(lists.sizes, users)
    by_label = DeferredSplit(_strata(dataset) if method == "stratified" else None, seed, validation, test)

    def parts_of(indices: Indices, device: int) -> Parts:
        if given_parts is not None:
            return split_as_given(indices, given_parts, device_name(device, users))
        if method == "block":
            sequences, times, name = dataset.sequences, dataset.times, device_name(device, users)
            return split_by_block(indices, sequences, name, validation=validation, test=test, gap=gap, times=times)
        return by_label.parts(indices, device)

    now = dataset.standardize or method in ("block", "given") or len(lists) <= SPLIT_AT_ONCE
    if now:
        parts = [parts_of(indices, device) for device, indices in enumerate(lists)]
        indices = np.concatenate([part for of_device in parts for part in of_device])
        offsets = _offsets(np.array([[len(part) for part in of_device] for of_device in parts], np.int64))
    else:
        indices, offsets = lists.values, _offsets(part_sizes(lists.sizes, validation, test))
    by = scales(dataset.x, indices, offsets) if dataset.standardize else {}
    if dataset.standardize and not by:
        raise DataError(
            f"data {dataset.name}: standardize: expected float inputs, found only integers; store x as float32"
        )
    x = standardized(dataset.x, by, indices, offsets) if by else dataset.x
    return FederatedData(
        dataset.name,
        x,
        dataset.y,
        dataset.classes,
        indices,
        offsets,
        spread,
        None if now else by_label,
        digest,
        users,
        dataset.times,
        scales=by,
        class_names=dataset.class_names,
    )


def _check_sizes(sizes: Indices, users: Array | None) -> None:
    small = np.flatnonzero(sizes < MIN_EXAMPLES).tolist()
    for device in small[:1]:
        check_enough(int(sizes[device]), device_name(device, users), len(small) - 1)


def device_name(device: int, users: Array | None) -> str:
    """Return a device's number for errors, with its user if the data has user ids."""
    return str(device) if users is None else f"{device} (user {users[device]})"


def described(function: Any) -> str:
    """Return the name of a function or the class of an object, and the settings of a `functools.partial`."""
    settings: dict[str, Any] = {}
    if isinstance(function, functools.partial):
        settings, function = function.keywords, function.func
    name = getattr(function, "__name__", type(function).__name__)
    return " ".join([name, *(f"{key}={value}" for key, value in sorted(settings.items()))])


def _described_split(method: str, validation: float, test: float, gap: int) -> str:
    if method == "given":
        return "split=given"
    suffix = {"random": " split=random", "block": f" split=block gap={gap}"}.get(method, "")
    return f"validation={validation} test={test}{suffix}"


def _partitioned(dataset: Dataset, partition: Partition, devices: int | None, seed: int) -> IndexLists:
    """Run the partition, check its result, and return the index lists."""
    where, name = f"the partition of data {dataset.name}", described(partition)
    with user_code_errors(partition, f"partition: {name} failed", ConfigurationError):
        parts = partition(dataset, devices, seed)
        if not hasattr(parts, "__len__"):
            raise DataError(
                f"{where}: returned a {type(parts).__name__}, expected a list of index arrays, one per device; return "
                "list(...)"
            )
        if not len(parts) or (devices is not None and len(parts) != devices):
            raise DataError(
                f"{where}: created {counted(len(parts), 'device')}, expected {devices or 'at least 1'}; correct the partition"
            )
        lists = IndexLists.of(parts)
    used = lists.values
    if len(used) and (used.min() < 0 or used.max() >= len(dataset.x)):
        raise DataError(f"{where}: has indices {used.min()}..{used.max()}, expected 0..{len(dataset.x) - 1}")
    times = np.bincount(used, minlength=1)
    if times.max() > 1:
        raise DataError(f"{where}: uses example {times.argmax()} {times.max()} times, expected at most once")
    return lists


def _users(dataset: Dataset, lists: IndexLists) -> Array | None:
    """Return the user of each device, `[devices]`; None if a device has no examples, or examples of several users."""
    if dataset.users is None or not lists.sizes.all():
        return None
    users, first = dataset.users[lists.values], dataset.users[lists.values[lists.ends[:-1]]]
    return first if np.array_equal(users, np.repeat(first, lists.sizes)) else None


def _strata(dataset: Dataset) -> Array | None:
    """Return the labels or regression values for stratification; None if there is neither."""
    if dataset.has_labels:
        return dataset.labels()
    first = next(iter(arrays_of(dataset.y).values()))
    return first if first.ndim == 1 else None


def _offsets(sizes: Indices) -> Indices:
    """Return the offsets `[devices, 4]` of parts from their sizes `[devices, 3]`."""
    ends = np.cumsum(sizes).reshape(sizes.shape)
    return np.concatenate([ends[:, 2:] - sizes.sum(axis=1, keepdims=True), ends], axis=1)
