"""One device's examples as train, validation and test examples."""

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.dataset import Array, Indices
from odt_sim.errors import ConfigurationError, DataError

_STREAM = 2  # keeps these random numbers apart from those of the partitions
MIN_EXAMPLES = 3


def split(
    indices: Indices, labels: Array | None, seed: int, device: int, *, validation: float = 0.2, test: float = 0.2
) -> tuple[Indices, Indices, Indices]:
    """Splits a device's examples so that each part has at least one, and about the same mix of labels.

    The examples are put in the order of their labels, at random within a label; every `1/test`-th from a random start is
    for the test, likewise for validation among the rest (systematic sampling), so each example is equally likely to be
    in a part. It depends on `(seed, device)` only.

    Args:
        indices: The device's examples.
        labels: The label, or the value to regress, of each example of the data set; None spreads without regard to it.
        seed: The seed.
        device: The device's number.
        validation: The fraction to choose hyper-parameters on, above 0.
        test: The fraction to evaluate on, above 0; the two stay below 1.

    Returns:
        The indices of the train, validation and test examples, each ascending.

    Raises:
        DataError: The device has fewer than 3 examples.
        ConfigurationError: The fractions are out of range.
    """
    check_fractions(validation, test)
    examples = len(indices)
    if examples < MIN_EXAMPLES:
        raise DataError(
            f"device {device} has {examples} example{'' if examples == 1 else 's'}, expected at least {MIN_EXAMPLES} (train, "
            "validation, test); choose fewer devices or another partition, or leave such users out of the data"
        )
    generator = np.random.default_rng([seed, _STREAM, device])
    order = indices[generator.permutation(examples)]
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
    for_test = min(max(round(examples * test), 1), examples - 2)
    for_validation = min(max(round(examples * validation), 1), examples - 1 - for_test)
    start, second_start = generator.random(2)
    in_test = _spread(examples, for_test, start)
    rest = order[~in_test]
    in_validation = _spread(len(rest), for_validation, second_start)
    return np.sort(rest[~in_validation]), np.sort(rest[in_validation]), np.sort(order[in_test])


def check_fractions(validation: float, test: float) -> None:
    """Checks the fractions of a split.

    Raises:
        ConfigurationError: They are out of range.
    """
    if not (validation > 0 and test > 0 and validation + test < 1):
        raise ConfigurationError(
            f"split.validation is {validation} and split.test {test}, expected both above 0 and their sum below 1"
        )


def _spread(length: int, chosen: int, start: float) -> NDArray[np.bool_]:
    """Returns a mask of `length` with `chosen` places, evenly apart, the first within `start` (0..1) of a step."""
    mask = np.zeros(length, np.bool_)
    mask[((np.arange(chosen) + start) * (length / chosen)).astype(np.int64)] = True
    return mask
