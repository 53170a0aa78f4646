"""Estimates of what is left of a run and of what actors would save, for known costs."""

import pytest

from odt_sim.simulation.pace import FEWEST_SECONDS, ROUND_ON_ACTORS, Paces, Progress, saved


@pytest.mark.parametrize(
    ("seconds", "costs", "cores", "expected"),
    [
        (8, [1, 1, 1, 1], 2, 4),
        (8, [1, 1, 1, 1], 4, 6),
        (8, [3, 1], 2, 2),  # the long block takes 6 of them
        (8, [5], 4, 0),
        (8, [1, 1], 1, 0),
        (0, [1, 1], 2, 0),
        (0, [], 2, 0),
    ],
)
def test_actors_save_what_runs_beside_the_longest_block(seconds, costs, cores, expected):
    assert saved(seconds, costs, cores) == pytest.approx(expected - ROUND_ON_ACTORS)


def test_time_counts_from_the_end_of_the_first_block():
    progress = Progress(rounds=10)
    assert progress.rate(now=3, done=0) == 0
    progress.begin(now=5, cost=2)
    progress.begin(now=9, cost=7)  # a later block
    assert progress.rate(now=5, done=2) == 0
    assert progress.rate(now=11, done=6) == 1.5


def test_work_left_repeats_what_was_done():
    """Rounds of cost 4, an evaluation of cost 6 after two of them."""
    progress = Progress(rounds=10)
    assert progress.left(1, 4, "train") == 3 + 9 * 4
    progress.cost = 4
    progress.end(1)
    assert progress.left(1, 4, "train") == 3 + 8 * 4
    progress.cost += 4
    progress.end(2)
    assert progress.left(4, 6, "evaluate") == 2 + 8 * 6
    progress.cost += 6
    assert progress.left(2, 4, "train") == pytest.approx(2 + 7 * 16 / 2.5)
    assert progress.left(4, 6, "final") == 2


def test_calls_of_one_round_on_the_clock_count_once():
    progress = Progress(rounds=3, cost=8)
    progress.end(1)
    progress.end(1)
    assert progress.left(0, 4, "train") == 4 + 8


def test_resumed_run_has_the_rounds_left_after_its_last():
    progress = Progress(rounds=10, cost=4)
    progress.end(8)
    assert progress.left(0, 4, "train") == 4 + 4


def test_paces_compare_rounds_of_equal_cost():
    paces, second = Paces(), FEWEST_SECONDS
    for _ in range(2):
        assert paces.compared() is None
        paces.add(second, 4, actors=False, evaluates=False)
    for _ in range(2):
        assert paces.compared() is None
        paces.add(second, 8, actors=True, evaluates=False)
    assert paces.compared() == pytest.approx((1.5 * second, 0.75 * second))


def test_rounds_with_evaluation_are_compared_apart():
    paces, second = Paces(), FEWEST_SECONDS
    for actors, evaluates in ((False, False), (True, True)):
        for _ in range(2):
            paces.add(second, 1, actors=actors, evaluates=evaluates)
    assert paces.compared() is None
    for _ in range(2):
        paces.add(2 * second, 1, actors=False, evaluates=True)
    assert paces.compared() == pytest.approx((2 * second, second))


def test_run_without_a_whole_round_here_compares_by_its_blocks():
    paces = Paces(rate=3.0)
    for _ in range(2):
        paces.add(2 * FEWEST_SECONDS, 4, actors=True, evaluates=False)
    assert paces.compared() == pytest.approx((12.0, 2 * FEWEST_SECONDS))
