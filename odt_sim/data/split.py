"""One device's examples as train, validation and test examples: at random, alike in their labels, or by block."""

import numpy as np

from odt_sim.data.dataset import Array, Indices
from odt_sim.errors import DataError

_STREAM = 2  # keeps these random numbers apart from those of the partitions
MIN_EXAMPLES = 3

Parts = tuple[Indices, Indices, Indices]
"""The indices of a device's train, validation and test examples."""


def split(
    indices: Indices, labels: Array | None, seed: int, device: int, *, validation: float = 0.2, test: float = 0.2
) -> Parts:
    """Splits a device's examples so that each part asked for has at least one, and about the same mix of labels.

    The examples are put in the order of their labels, at random within a label; every `1/test`-th from a random start is
    for the test, likewise for validation among the rest (systematic sampling), so each example is equally likely to be
    in a part. It depends on `(seed, device)` only.

    Args:
        indices: The device's examples.
        labels: The label, or the value to regress, of each example of the data set; None spreads without regard to it.
        seed: The seed.
        device: The device's number.
        validation: The fraction to choose hyper-parameters on; 0 for none.
        test: The fraction to evaluate on, above 0; the two stay below 1.

    Returns:
        The indices of the train, validation and test examples, each ascending.

    Raises:
        DataError: The device has fewer than 3 examples.
    """
    _check_enough(len(indices), device)
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
    indices: Indices, sequences: Array | None, device: int, *, validation: float = 0.2, test: float = 0.2, gap: int = 1
) -> Parts:
    """Splits each sequence of a device's examples into three blocks: training first, then validation, the end for the test.

    Between two blocks `gap` examples are left out, so that windows that overlap do not tell one part about another. A
    sequence with fewer than `3 + 2 gap` examples is for training as a whole. Nothing here is random.

    Args:
        indices: The device's examples, ascending.
        sequences: `[examples of the data set]` the sequence that each example is of, in the order of time; None where all
            examples of a device are one.
        device: The device's number, for the error.
        validation: The fraction of a sequence to choose hyper-parameters on; 0 for none.
        test: The fraction to evaluate on, above 0; the two stay below 1.
        gap: The examples left out at each border, at least 0: 1 where neighbours overlap by up to a half.

    Returns:
        The indices of the train, validation and test examples, each ascending.

    Raises:
        DataError: The device has no sequence that is long enough.
    """
    _check_enough(len(indices), device)
    of = np.zeros(len(indices), np.int64) if sequences is None else sequences[indices]
    blocks = [_blocks(indices[of == one], validation, test, gap) for one in np.unique(of)]
    train, for_validation, for_test = (np.sort(np.concatenate(part)) for part in zip(*blocks, strict=True))
    if not len(for_test):
        raise DataError(
            f"device {device} has no sequence of {MIN_EXAMPLES + 2 * gap} examples to cut into blocks; lower split.gap, "
            "choose fewer devices, or split.method=stratified"
        )
    return train, for_validation, for_test


def _blocks(sequence: Indices, validation: float, test: float, gap: int) -> Parts:
    used = len(sequence) - 2 * gap
    if used < MIN_EXAMPLES:
        return sequence, sequence[:0], sequence[:0]
    first, for_validation, for_test = _sizes(used, validation, test)
    return sequence[:first], sequence[first + gap :][:for_validation], sequence[-for_test:]


def part_sizes(examples: Indices, validation: float, test: float) -> Indices:
    """Returns `[devices, 3]`: how many train, validation and test examples `split` gives devices that have so many.

    Raises:
        DataError: A device has fewer than 3 examples.
    """
    few = np.flatnonzero(examples < MIN_EXAMPLES)
    if len(few):
        _check_enough(int(examples[few[0]]), int(few[0]))
    found, kind = np.unique(examples, return_inverse=True)
    sizes = np.array([_sizes(count, validation, test) for count in found.tolist()], np.int64)
    return np.asarray(sizes[kind])


def _sizes(examples: int, validation: float, test: float) -> tuple[int, int, int]:
    """Returns how many of at least 3 examples are for training, validation and the test; no part asked for is empty."""
    for_test = min(max(round(examples * test), 1), examples - 2)
    for_validation = max(round(examples * validation), 1) if validation else 0
    for_validation = min(for_validation, examples - 1 - for_test)
    return examples - for_validation - for_test, for_validation, for_test


def _check_enough(examples: int, device: int) -> None:
    if examples < MIN_EXAMPLES:
        raise DataError(
            f"device {device} has {examples} example{'' if examples == 1 else 's'}, expected at least {MIN_EXAMPLES} "
            "(train, validation, test); choose fewer devices or another partition, or leave such users out of the data"
        )


def _parted(order: Indices, chosen: int, start: float) -> tuple[Indices, Indices]:
    """Returns what is not and what is chosen: so many places, evenly apart, the first within `start` (0..1) of a step."""
    if not chosen:
        return order, order[:0]
    step = len(order) / chosen
    places = [int((place + start) * step) for place in range(chosen)]
    left = np.ones(len(order), np.bool_)
    left[places] = False
    return order[left], order[places]
