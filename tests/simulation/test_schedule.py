"""The schedule of blocks, simulated with known costs."""

import heapq
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.simulation.executors.ray.calls import OwnActors, SharedActors


def makespan(costs: Sequence[float], actors: int, known: Sequence[float] | None = None) -> float:
    """Return the time at which the last actor finishes; each makes its calls one by one.

    Args:
        costs: The actual cost of each block.
        actors: The number of actors.
        known: The costs known to the schedule; by default the actual ones.
    """
    schedule = SharedActors(costs if known is None else known, [1] * len(costs), actors, 32)
    free, running = [0.0] * actors, list[tuple[float, int, list[int]]]()
    now = 0.0
    while True:
        while (taken := schedule.take([True] * actors)) is not None:
            tasks, slot = taken
            free[slot] = max(free[slot], now) + sum(costs[task] for task in tasks)
            heapq.heappush(running, (free[slot], slot, tasks))
        if not running:
            return now
        now, slot, tasks = heapq.heappop(running)
        schedule.back(tasks, slot, done=True)


def best(costs: Sequence[float], actors: int) -> float:
    """Return a lower bound: equal shares, the longest block, or two blocks that one actor must do."""
    ordered = sorted(costs, reverse=True)
    together = ordered[actors - 1] + ordered[actors] if len(ordered) > actors else 0.0
    return max(sum(costs) / actors, ordered[0], together)


def test_equal_blocks_keep_two_actors_busy() -> None:
    assert makespan([1.0] * 10, 2) == 5


def test_longest_blocks_begin_first() -> None:
    assert makespan([1.0, 5.0, 1.0, 3.0], 2) == 5


@pytest.mark.parametrize("actors", [2, 3, 4])
@pytest.mark.parametrize("blocks", [16, 40, 313])
def test_uneven_blocks_take_nearly_the_ideal_time(blocks: int, actors: int) -> None:
    for seed in range(30):
        generator = np.random.default_rng(seed)
        for costs in (
            generator.uniform(1, 10, blocks),
            generator.permutation([10.0] * (blocks // 4) + [1.0] * (blocks - blocks // 4)),
        ):
            assert best(costs.tolist(), actors) / makespan(costs.tolist(), actors) >= 0.9


def test_late_expensive_block_does_not_idle_the_others() -> None:
    for at in range(16):
        costs = [1.0] * 16
        costs[at] = 10.0
        assert best(costs, 2) / makespan(costs, 2) >= 0.96  # 13 of 13.5


def test_wrong_costs_leave_nine_tenths_of_the_speed() -> None:
    for seed in range(30):
        generator = np.random.default_rng(seed)
        costs = generator.uniform(1, 10, 40)
        known = costs * generator.uniform(2 / 3, 4 / 3, 40)
        assert best(costs.tolist(), 2) / makespan(costs.tolist(), 2, known.tolist()) >= 0.9


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.integers(1, 32)), min_size=1, max_size=40),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_every_block_is_done_once_despite_deaths(blocks: list[tuple[float, int]], actors: int, random: Random) -> None:
    schedule = SharedActors([cost for cost, _ in blocks], [size for _, size in blocks], actors, 32)
    running, done = list[tuple[list[int], int]](), list[int]()
    while True:
        while (taken := schedule.take([True] * actors)) is not None:
            running.append(taken)
            assert len(taken[0]) == 1 or sum(blocks[task][1] for task in taken[0]) <= 32
        assert len({slot for _, slot in running}) == len(running)
        if not running:
            break
        tasks, slot = running.pop(random.randrange(len(running)))
        alive = random.random() < 0.8
        schedule.back(tasks, slot, done=alive)
        done += tasks if alive else []
    assert sorted(done) == list(range(len(blocks)))


def test_cut_blocks_are_done_device_by_device() -> None:
    """They come next, one per call; the other blocks go together as before."""
    schedule = SharedActors([2.0, 2.0, 1.0, 1.0], [3, 2, 1, 1], 1, 7)
    tasks, slot = schedule.take([True])
    assert tasks == [0, 1]
    schedule.cut([4, 5, 6], slot)
    calls = []
    while taken := schedule.take([True]):
        schedule.back(*taken, done=True)
        calls.append(taken[0])
    assert calls == [[4], [5], [6], [2], [3]]


def test_slot_without_an_actor_leaves_its_share_to_others() -> None:
    schedule = SharedActors([1.0] * 4, [1] * 4, 2, 32)
    ready = [False, True]
    done = []
    while taken := schedule.take(ready):
        tasks, slot = taken
        assert slot == 1
        schedule.back(tasks, slot, done=True)
        done += tasks
    assert sorted(done) == [0, 1, 2, 3]


def test_dedicated_actors_do_their_own_device() -> None:
    ready = [True] * 8
    schedule = OwnActors([4, 0, 7], 2)
    assert [schedule.take(ready), schedule.take(ready), schedule.take(ready)] == [([0], 4), ([1], 0), None]
    schedule.back([1], 0, done=False)
    assert schedule.take([False, *ready[1:]]) == ([2], 7)
    schedule.back([0], 4, done=True)
    assert [schedule.take(ready), schedule.take(ready)] == [([1], 0), None]


def test_actor_that_was_added_later_gets_no_call():
    schedule = SharedActors([1.0, 1.0], [1, 1], 1, 32)
    assert schedule.take([False, True]) is None
