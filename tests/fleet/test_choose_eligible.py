"""A uniform choice among eligible devices."""

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim.fleet.draws import choose_eligible

CANDIDATES = np.arange(0, 2000, 2)


def below(limit: int) -> object:
    return lambda ids: ids[ids < limit]


@pytest.mark.parametrize("limit", [2000, 600, 60, 8])
def test_chosen_devices_are_eligible_and_different(limit: int) -> None:
    found = choose_eligible(CANDIDATES, 25, below(limit), np.random.default_rng(0))
    assert len(found) == min(25, limit // 2)
    assert (np.diff(found) > 0).all()
    assert set(found) <= set(range(0, limit, 2))


def test_every_eligible_device_is_as_likely_as_any_other() -> None:
    counts = np.zeros(2000)
    for seed in range(2000):
        counts[choose_eligible(CANDIDATES, 10, below(200), np.random.default_rng(seed))] += 1
    assert counts[200:].sum() == 0
    chosen = counts[:200:2]
    assert abs(chosen - 200).max() < 5 * np.sqrt(200)


@pytest.mark.parametrize("seed", range(5))
def test_device_that_was_checked_is_not_drawn_again(seed: int) -> None:
    """One of five devices is eligible, so a second draw is needed from a fleet that is large for it."""
    found = choose_eligible(np.arange(8000), 100, lambda ids: ids[ids % 5 == 0], np.random.default_rng(seed))
    assert len(set(found.tolist())) == 100


def test_few_candidates_are_looked_at_in_a_large_fleet() -> None:
    looked = 0

    def some(ids: NDArray[np.int64]) -> NDArray[np.int64]:
        nonlocal looked
        looked += len(ids)
        return ids[ids % 5 == 0]

    found = choose_eligible(np.arange(1_000_000), 100, some, np.random.default_rng(0))
    assert len(found) == 100
    assert looked < 2000
