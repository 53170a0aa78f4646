"""Oort's selection, compared with plain Python written from the paper's algorithm 1."""

import math

import numpy as np
import pytest

from odt_sim.simulation.clock.oort import (
    Explored,
    exploration,
    preferred_duration,
    select,
    statistical_utility,
    utilities,
)

STEP = 10.0


def paper_utilities(
    statistical: dict[int, float], last: dict[int, int], duration: dict[int, float], round: int, preferred: float
) -> dict[int, float]:
    """Return the utility of each explored device: clipping, the temporal term and the penalty of slow devices."""
    cap = float(np.percentile(list(statistical.values()), 95))
    clipped = {device: min(value, cap) for device, value in statistical.items()}
    top = max(clipped.values())
    found = {}
    for device, value in clipped.items():
        utility = value / top + math.sqrt(0.1 * math.log(round) / last[device])
        if preferred < duration[device]:
            utility *= (preferred / duration[device]) ** 2
        found[device] = utility
    return found


def test_statistical_utility_of_known_losses() -> None:
    assert statistical_utility(8, np.array([3, 4], np.float32)) == pytest.approx(8 * math.sqrt(12.5))
    assert statistical_utility(8, np.empty(0, np.float32)) == 0


def test_utilities_agree_with_the_paper() -> None:
    random, explored = np.random.default_rng(0), Explored()
    statistical: dict[int, float] = {}
    last: dict[int, int] = {}
    duration: dict[int, float] = {}
    for round in range(1, 30):
        ids = np.sort(random.choice(40, 8, replace=False))
        durations = random.uniform(1, 60, 8)
        reported = {int(device): float(random.uniform(1, 100)) for device in ids[:6]}
        explored = explored.after(round, ids, durations, reported)
        last |= dict.fromkeys(ids.tolist(), round)
        duration |= dict(zip(ids.tolist(), durations.tolist(), strict=True))
        statistical = {**dict.fromkeys(ids.tolist(), 0.0), **statistical, **reported}
        expected = paper_utilities(statistical, last, duration, round + 1, 25.0)
        assert explored.ids.tolist() == sorted(expected)
        np.testing.assert_allclose(
            utilities(explored, round + 1, 25.0), [expected[device] for device in sorted(expected)]
        )


def test_pacer_raises_the_duration_once_utility_falls() -> None:
    rising, falling = np.arange(60.0), -np.arange(60.0)
    assert preferred_duration(rising, STEP) == STEP
    assert preferred_duration(falling[:39], STEP) == STEP
    assert preferred_duration(falling[:40], STEP) == 2 * STEP
    assert preferred_duration(falling[:59], STEP) == 2 * STEP
    assert preferred_duration(falling, STEP) == 3 * STEP


def test_exploration_falls_to_a_fifth() -> None:
    assert exploration(1) == 0.9
    assert exploration(2) == pytest.approx(0.882)
    assert exploration(500) == 0.2


def explored(utility: list[float], duration: list[float]) -> Explored:
    count = len(utility)
    return Explored(
        np.arange(count), np.array(utility), np.array(duration), np.full(count, 100, np.int64), np.zeros(100)
    )


def test_selection_exploits_devices_above_the_cut_off_and_explores_fast_ones() -> None:
    known = explored([100, 100, 100, 100, 5, 5, 5, 5], [1] * 4 + [1] * 4)
    eligible, random = np.arange(12), np.random.default_rng(0)
    drawn = [select(eligible, np.r_[np.ones(11), 1e9], 5, 101, known, STEP, random) for _ in range(20)]
    for ids in drawn:
        assert ids.tolist() == sorted(set(ids.tolist()))
        assert set(ids.tolist()) == {0, 1, 2, 3, 11}  # four above the cut-off, and the one fast unexplored device


def test_slow_devices_lose_utility() -> None:
    known = explored([100, 100], [STEP, 10 * STEP])
    fast, slow = utilities(known, 101, STEP)
    assert slow == pytest.approx(fast / 100)


def test_first_round_explores_only() -> None:
    chosen = select(np.arange(10), np.ones(10), 4, 1, Explored(), STEP, np.random.default_rng(0))
    assert len(set(chosen.tolist())) == 4


def test_selection_takes_known_devices_where_no_others_are_left() -> None:
    known = explored([1, 2, 3, 4], [1] * 4)
    assert select(np.arange(4), np.ones(4), 4, 101, known, STEP, np.random.default_rng(0)).tolist() == [0, 1, 2, 3]


def test_probability_follows_utility() -> None:
    known = explored([100.0] * 20 + [97.0] * 20, [1.0] * 40)
    random, counts = np.random.default_rng(0), np.zeros(40)
    for _ in range(400):
        counts[select(np.arange(40), np.ones(40), 10, 101, known, STEP, random)] += 1
    assert counts[:20].sum() / counts[20:].sum() == pytest.approx(1.03, abs=0.15)
