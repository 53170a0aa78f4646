"""The measured seconds of rounds by place, and what actors are expected to take, for known times."""

import pytest

from odt_sim.simulation.pace import FEWEST_SECONDS, ROUND_ON_ACTORS, Paces, on_actors


@pytest.mark.parametrize(
    ("work", "costs", "cores", "expected"),
    [
        (8, [1, 1, 1, 1], 2, 4),
        (8, [1, 1, 1, 1], 4, 2),
        (8, [3, 1], 2, 6),  # the long block
        (8, [5], 4, 8),
        (8, [1, 1], 1, 8),
        (0, [1, 1], 2, 0),
        (0, [], 2, 0),
    ],
)
def test_actors_take_as_long_as_the_longest_block_at_least(work, costs, cores, expected):
    assert on_actors(work, costs, cores) == pytest.approx(expected + ROUND_ON_ACTORS)


def add(paces, place, seconds, cost, rounds=2, *, cpu=0.0, evaluates=False, first=True):
    """Add rounds; the first of all in a place only builds interpreters."""
    for number in range(0 if first else 1, rounds + 1):
        paces.begin(place, 100.0, 50.0, cost)
        if evaluates:
            paces.evaluates()
        paces.end(100.0 + (seconds if number else 77.0), 50.0 + cpu)


def test_rounds_of_different_cost_are_compared_at_the_average_cost():
    paces, second = Paces(), FEWEST_SECONDS
    add(paces, "threads", second, 4)
    assert paces.known("threads")
    assert paces.compared("threads", "ray") is None
    add(paces, "ray", second, 8)
    assert paces.compared("threads", "ray") == pytest.approx((1.5 * second, 0.75 * second))
    assert paces.seconds("threads") == pytest.approx(1.5 * second)


def test_first_round_in_a_place_counts_not():
    paces = Paces()
    add(paces, "threads", FEWEST_SECONDS, 1, rounds=1)
    assert not paces.known("threads")


def test_rounds_with_evaluation_are_compared_apart():
    paces, second = Paces(), FEWEST_SECONDS
    add(paces, "threads", second, 1)
    add(paces, "this process", second, 1, evaluates=True)
    assert paces.compared("threads", "this process") is None
    add(paces, "threads", 2 * second, 1, evaluates=True, first=False)
    assert paces.compared("threads", "this process") == pytest.approx((2 * second, second), rel=1e-6)


def test_busy_is_the_number_of_cores_in_use():
    paces = Paces()
    add(paces, "threads", 2.0, 1, cpu=3.0)
    assert paces.busy("threads") == 1.5


def test_forgotten_rounds_count_only_in_the_total():
    paces = Paces()
    add(paces, "threads", FEWEST_SECONDS, 1)
    paces.forget()
    assert not paces.known("threads")
    add(paces, "threads", 1.0, 1)  # the first round in a place, again, is no measurement
    assert paces.seconds("threads") == pytest.approx(1.0)
    assert paces.total == pytest.approx(2 * FEWEST_SECONDS + 2.0)
