"""Index lists of devices, and splits of a device's examples into train, validation and test examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex, overload

import numpy as np

from odt_sim.data.dataset import Array, Indices
from odt_sim.errors import DataError

_STREAM = 2  # separates these random numbers from those of the partitions
MIN_EXAMPLES = 3

Parts = tuple[Indices, Indices, Indices]
"""The indices of a device's train, validation and test examples."""


def split(
    indices: Indices, labels: Array | None, seed: int, device: int, *, validation: float = 0.2, test: float = 0.2
) -> Parts:
    """Split a device's examples at random into non-empty parts with about the same label distribution.

    Systematic sampling: the examples are sorted by label, in random order within a label. From a random start, every
    `1/test`-th example becomes a test example; validation examples are chosen likewise from the rest. The split depends
    only on `(seed, device)`.

    Args:
        indices: The device's examples.
        labels: The label or regression value of each example of the data set; None for no stratification.
        seed: The seed.
        device: The device's number.
        validation: The fraction for model selection; 0 for none.
        test: The fraction for reported results, above 0; the sum of both is below 1.

    Returns:
        The indices of the train, validation and test examples, each ascending.

    Raises:
        DataError: The device has fewer than 3 examples.
    """
    check_enough(len(indices), device)
    examples = len(indices)
    generator = np.random.default_rng([seed, _STREAM, device])
    order = indices[generator.permutation(examples)]
    if labels is not None:
        order = order[labels[order].argsort(kind="stable")]
    _, for_validation, for_test = _sizes(examples, validation, test)
    start, second_start = generator.random(2).tolist()
    rest, in_test = _parted(order, for_test, start)
    train, in_validation = _parted(rest, for_validation, second_start)
    for part in (train, in_validation, in_test):
        part.sort()
    return train, in_validation, in_test


def split_by_block(
    indices: Indices,
    sequences: Array | None,
    device: int | str,
    *,
    validation: float = 0.2,
    test: float = 0.2,
    gap: int = 1,
    times: Array | None = None,
) -> Parts:
    """Split each sequence of a device's examples into three blocks: train, validation, test.

    `gap` examples between two blocks are left out, so that overlapping windows do not leak: `2 gap` of a sequence, or
    `gap` without validation. A sequence with fewer than 3 remaining examples is used only for training. The split is
    not random.

    Args:
        indices: The device's examples, ascending.
        sequences: `[examples of the data set]` the sequence of each example; None if a device's examples are one sequence.
        device: The device's number or name, for errors.
        validation: The fraction of a sequence for model selection; 0 for none.
        test: The fraction for reported results, above 0; the sum of both is below 1.
        gap: The examples left out at each border, at least 0; 1 is enough if neighbours overlap by up to a half.
        times: `[examples of the data set]` the time of each example, which orders a sequence; None to use the order of
            `indices`.

    Returns:
        The indices of the train, validation and test examples, each ascending.

    Raises:
        DataError: No sequence of the device is long enough.
    """
    check_enough(len(indices), device)
    if times is not None:
        indices = indices[np.argsort(times[indices], kind="stable")]
    labels = np.zeros(len(indices), np.int64) if sequences is None else sequences[indices]
    blocks = [_blocks(indices[labels == label], validation, test, gap) for label in np.unique(labels)]
    train, for_validation, for_test = (np.sort(np.concatenate(part)) for part in zip(*blocks, strict=True))
    if not len(for_test):
        least = MIN_EXAMPLES + _borders(validation) * gap
        raise DataError(
            f"device {device}: has no sequence of at least {least} examples to split into blocks; use a smaller "
            "split.gap, fewer devices, or split.method=stratified"
        )
    return train, for_validation, for_test


def _blocks(sequence: Indices, validation: float, test: float, gap: int) -> Parts:
    used = len(sequence) - _borders(validation) * gap
    if used < MIN_EXAMPLES:
        return sequence, sequence[:0], sequence[:0]
    first, for_validation, for_test = _sizes(used, validation, test)
    return sequence[:first], sequence[first + gap :][:for_validation], sequence[-for_test:]


def _borders(validation: float) -> int:
    """Return the number of borders between the blocks of a sequence."""
    return 2 if validation else 1


def split_as_given(indices: Indices, parts: Array, device: int | str) -> Parts:
    """Split a device's examples into the parts given by the data, such as a published split.

    Args:
        indices: The device's examples.
        parts: `[examples of the data set]` 0 for training, 1 for validation, 2 for test.
        device: The device's number or name, for errors.

    Returns:
        The indices of the train, validation and test examples, each ascending.

    Raises:
        DataError: The device has no training example or no test example.
    """
    ascending = np.sort(indices)
    train, validation, test = (ascending[parts[ascending] == part] for part in range(3))
    if not len(train) or not len(test):
        raise DataError(
            f"device {device}: has {len(train)} training and {len(test)} test examples in the parts of the data, expected at "
            "least one of each, also for unseen devices; mark one in the parts (0 is training, 2 is test), choose "
            "partition=by_user, fewer devices, or another split.method, or leave such users out of the data"
        )
    return train, validation, test


def part_sizes(examples: Indices, validation: float, test: float) -> Indices:
    """Return the sizes of the three parts of `split`, `[devices, 3]`, for numbers of examples, `[devices]`, from 3."""
    counts, inverse = np.unique(examples, return_inverse=True)
    sizes = np.array([_sizes(count, validation, test) for count in counts.tolist()], np.int64)
    return np.asarray(sizes[inverse])


def _sizes(examples: int, validation: float, test: float) -> tuple[int, int, int]:
    """Return the sizes of the three parts of at least 3 examples; a part is empty only if `validation` is 0."""
    for_test = min(max(round(examples * test), 1), examples - 2)
    for_validation = max(round(examples * validation), 1) if validation else 0
    for_validation = min(for_validation, examples - 1 - for_test)
    return examples - for_validation - for_test, for_validation, for_test


def check_enough(examples: int, device: int | str, others: int = 0) -> None:
    """Check that a device has enough examples for all three parts.

    Args:
        examples: The number of its examples.
        device: Its number or name, for errors.
        others: The number of other devices with too few examples, for errors.

    Raises:
        DataError: It has too few.
    """
    if examples < MIN_EXAMPLES:
        also = f", and too few on {others} other device{'s' if others > 1 else ''}" if others else ""
        raise DataError(
            f"device {device}: expected at least {MIN_EXAMPLES} examples (train, validation, test), found {examples}{also}; "
            "choose fewer devices or another partition, or leave such users out of the data"
        )


def _parted(order: Indices, chosen: int, start: float) -> tuple[Indices, Indices]:
    """Return the rest and `chosen` evenly spaced indices, the first of which is at the fraction `start` of a step."""
    if not chosen:
        return order, order[:0]
    step = len(order) / chosen
    places = [int((number + start) * step) for number in range(chosen)]
    left = np.ones(len(order), np.bool_)
    left[places] = False
    return order[left], order[places]


@dataclass(frozen=True, eq=False)
class IndexLists(Sequence[Indices]):
    """Sequence of int64 arrays, one per device, in compressed-row form.

    Attributes:
        values: `[used examples]` int64, device by device.
        ends: `[devices + 1]` int64, the start of each device's list in `values`, and the end of the last.
    """

    values: Indices
    ends: Indices

    @classmethod
    def of(cls, parts: Sequence[Indices]) -> "IndexLists":
        """Return index lists of the given parts; index lists are returned unchanged.

        Raises:
            DataError: A part is not a list of integers.
        """
        if isinstance(parts, IndexLists):
            return parts
        arrays = [np.asarray(part) for part in parts]
        for device, array in enumerate(arrays):
            if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
                raise DataError(
                    f"the partition: assigned device {device} {array.dtype} {list(array.shape)}, "
                    "expected a list of example indices"
                )
        ends = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int64)
        return cls(
            np.concatenate([np.zeros(0, np.int64), *(array.astype(np.int64, copy=False) for array in arrays)]), ends
        )

    @classmethod
    def grouped(cls, owner: Indices, devices: int) -> "IndexLists":
        """Return the ascending example indices of each device.

        Args:
            owner: `[examples]` the device of each example; -1 for none.
            devices: The number of devices.
        """
        order = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[order], np.arange(devices + 1))
        return cls(order[ends[0] :], ends - ends[0])

    @property
    def sizes(self) -> Indices:
        """`[devices]`: the number of each device's examples."""
        return np.diff(self.ends)

    def __len__(self) -> int:
        """Return the number of devices."""
        return len(self.ends) - 1

    @overload
    def __getitem__(self, device: SupportsIndex) -> Indices: ...

    @overload
    def __getitem__(self, device: slice) -> "list[Indices]": ...

    def __getitem__(self, device: SupportsIndex | slice) -> Indices | list[Indices]:
        """Return a view of a device's list; a list of views for a slice."""
        numbers = range(len(self))[device]
        if isinstance(numbers, range):
            return [self[number] for number in numbers]
        return self.values[self.ends[numbers] : self.ends[numbers + 1]]
