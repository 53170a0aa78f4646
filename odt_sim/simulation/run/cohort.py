"""The choice of devices: unseen ones, evaluated ones, cohorts, stragglers and blocks."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.random import generator_for
from odt_sim.errors import ConfigurationError

LARGEST_BLOCK = 32
FEWEST_BLOCKS = 16  # keeps many cores busy with a small cohort


def choose_unseen(devices: int, unseen: int | Sequence[int], seed: int) -> NDArray[np.int64]:
    """Return the ids, ascending, of the devices kept out of training.

    Args:
        devices: The number of all devices.
        unseen: The number of devices to draw, or their ids.
        seed: Seed of the draw.
    """
    if isinstance(unseen, Sequence):
        return np.array(sorted(unseen), np.int64)
    generator = np.random.default_rng([seed, *b"unseen"])
    return np.sort(generator.choice(devices, unseen, replace=False)).astype(np.int64)


def choose_hostile(
    devices: int, unseen: int | Sequence[int], hostile: int | Sequence[int], seed: int
) -> frozenset[int]:
    """Return the ids of the hostile devices, which take part in training.

    Args:
        devices: The number of all devices.
        unseen: The unseen devices, as in `choose_unseen`.
        hostile: The number of devices to draw, or their ids.
        seed: Seed of the draw; a larger number only adds devices.

    Raises:
        ConfigurationError: A listed device is unseen.
    """
    if not hostile:
        return frozenset()
    never = choose_unseen(devices, unseen, seed)
    if isinstance(hostile, int):
        generator = np.random.default_rng([seed, *b"hostile"])
        return frozenset(generator.permutation(np.delete(np.arange(devices), never))[:hostile].tolist())
    if idle := sorted({*hostile} & {*never.tolist()}):
        raise ConfigurationError(
            f"fleet.hostile: device {idle[0]} is unseen (fleet.unseen), so it cannot attack; choose another device"
        )
    return frozenset(map(int, hostile))


def choose_evaluated(
    seen: NDArray[np.int64], unseen: NDArray[np.int64], count: int | None, seed: int
) -> NDArray[np.int64]:
    """Return `[count]` ids, ascending, of the devices to evaluate: the same for every round and strategy.

    Seen and unseen devices are drawn in proportion, at least one of each. A `count` of None returns all devices.
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
    """Return whether a device is among ids in ascending order."""
    place = int(np.searchsorted(ids, device))
    return place < len(ids) and int(ids[place]) == device


def choose_cohort(seen: NDArray[np.int64], size: int | None, seed: int, round: int) -> NDArray[np.int64]:
    """Return `[size]` ids, ascending, of the devices of a round, drawn from the seen devices; None for all of them."""
    if size is None or size == len(seen):
        return seen
    generator = generator_for(seed, round, *b"cohort")
    return np.sort(generator.choice(seen, size, replace=False))


def choose_stragglers(cohort: Sequence[int], fraction: float, seed: int, round: int) -> set[int]:
    """Return the ids of a cohort's stragglers: the same for every strategy."""
    count = straggler_count(len(cohort), fraction)
    generator = generator_for(seed, round, *b"stragglers")
    return set(generator.choice(cohort, count, replace=False).tolist())


def straggler_count(cohort: int, fraction: float) -> int:
    """Return the number of stragglers in a cohort; at least one device is no straggler."""
    return min(int(fraction * cohort + 0.5), cohort - 1)


def blocks(devices: Sequence[int]) -> list[tuple[int, ...]]:
    """Cut a cohort, ascending, into blocks of at most 32 devices, which depend on the cohort only."""
    size = max(1, min(LARGEST_BLOCK, math.ceil(len(devices) / FEWEST_BLOCKS)))
    return [tuple(devices[start : start + size]) for start in range(0, len(devices), size)]
