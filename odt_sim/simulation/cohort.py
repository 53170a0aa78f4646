"""Which devices take part: in training at all, in a round, in a block of a round, and in what is evaluated."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ConfigurationError

LARGEST_BLOCK = 32
FEWEST_BLOCKS = 16  # so that a small cohort, too, keeps many cores busy; a block alone never depends on their number


def choose_unseen(devices: int, count: int, seed: int) -> NDArray[np.int64]:
    """Returns `[count]` device ids, ascending, that are kept out of training.

    Raises:
        ConfigurationError: No device would be left to train.
    """
    if not 0 <= count < devices:
        raise ConfigurationError(
            f"fleet.unseen: expected 0 to {devices - 1} of the {devices} devices, found {count}; leave some to train"
        )
    generator = np.random.default_rng([seed, *b"unseen"])
    return np.sort(generator.choice(devices, count, replace=False)).astype(np.int64)


def choose_evaluated(
    seen: NDArray[np.int64], unseen: NDArray[np.int64], count: int | None, seed: int
) -> NDArray[np.int64]:
    """Returns `[count]` device ids, ascending, that are evaluated: the same in every round, under every strategy.

    Args:
        seen: The ids of the devices that may train.
        unseen: The ids of those kept out of training. Both are drawn in proportion, at least one of each where there are any.
        count: How many to draw, at least 1, and 2 where there are unseen ones; None for all devices.
        seed: The run's seed.
    """
    devices = len(seen) + len(unseen)
    if count is None or count == devices:
        return np.arange(devices)
    generator = np.random.default_rng([seed, *b"evaluated"])
    of_unseen = min(max(round(count * len(unseen) / devices), 1), count - 1) if len(unseen) else 0
    chosen = [
        generator.choice(ids, size, replace=False) for ids, size in ((seen, count - of_unseen), (unseen, of_unseen))
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def holds(ids: NDArray[np.int64], device: int) -> bool:
    """Whether a device is among ids, ascending."""
    place = int(np.searchsorted(ids, device))
    return place < len(ids) and int(ids[place]) == device


def choose_cohort(seen: NDArray[np.int64], size: int | None, seed: int, round: int) -> NDArray[np.int64]:
    """Returns the ids, ascending, of the devices of one round; all of them where `size` is None.

    Args:
        seen: The ids of the devices that may train.
        size: How many take part.
        seed: The run's seed.
        round: The round, from 1; it and the seed decide who takes part.
    """
    if size is None or size == len(seen):
        return seen
    generator = np.random.default_rng([seed, round, *b"cohort"])
    return np.sort(generator.choice(seen, size, replace=False))


def choose_stragglers(cohort: Sequence[int], fraction: float, seed: int, round: int) -> set[int]:
    """Returns the ids of the devices of a cohort that are too slow; at least one device is in time.

    Args:
        cohort: The ids of the devices of the round.
        fraction: How many of them are too slow, 0 to below 1.
        seed: The run's seed.
        round: The round; it, the seed and the cohort decide, so that strategies are compared on the same stragglers.
    """
    count = straggler_count(len(cohort), fraction)
    generator = np.random.default_rng([seed, round, *b"stragglers"])
    return set(generator.choice(cohort, count, replace=False).tolist())


def straggler_count(cohort: int, fraction: float) -> int:
    """Returns how many of a cohort are too slow, so that at least one device is in time."""
    return min(int(fraction * cohort + 0.5), cohort - 1)


def blocks(devices: Sequence[int]) -> list[tuple[int, ...]]:
    """Cuts a cohort, ascending, into blocks of at most 32 devices; it depends on the cohort only."""
    size = max(1, min(LARGEST_BLOCK, math.ceil(len(devices) / FEWEST_BLOCKS)))
    return [tuple(devices[start : start + size]) for start in range(0, len(devices), size)]
