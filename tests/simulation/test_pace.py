"""Measured seconds of rounds by place, for known times."""

import pytest

from odt_sim.simulation.pace import (
    FEWEST_LONG,
    FEWEST_ROUNDS,
    FEWEST_SECONDS,
    FEWEST_SLOWER,
    LONG_SECONDS,
    SLOWER,
    Paces,
)


def add(paces, place, seconds, cost, rounds=FEWEST_ROUNDS, *, evaluates=False, first=True):
    """Add rounds; the very first round in a place only builds interpreters."""
    for number in range(0 if first else 1, rounds + 1):
        paces.begin(place, 100.0, cost)
        if evaluates:
            paces.evaluates()
        paces.end(100.0 + (seconds if number else 77.0))


def test_rounds_of_different_cost_are_compared_at_the_average_cost():
    paces, second = Paces(), FEWEST_SECONDS
    add(paces, "processes", second, 4)
    assert paces.known("processes")
    assert paces.compared("processes", "ray") is None
    add(paces, "ray", second, 8)
    assert paces.compared("processes", "ray") == pytest.approx((1.5 * second, 0.75 * second))
    assert paces.seconds("processes") == pytest.approx(1.5 * second)


def test_single_slow_round_decides_nothing():
    """For example, a round that waits for a disk."""
    paces, second = Paces(), FEWEST_SECONDS
    short = second / FEWEST_ROUNDS / 2
    add(paces, "processes", short, 1, rounds=FEWEST_ROUNDS - 1)
    assert not paces.known("processes")
    add(paces, "processes", 9 * second, 1, rounds=1, first=False)
    assert paces.seconds("processes") == pytest.approx(short)


def test_first_rounds_that_compute_embeddings_decide_nothing():
    """Ten of 20 devices in each round: the first four rounds that are measured compute many."""
    paces = Paces()
    for seconds in (0.05, 0.025, 0.012, 0.006):
        add(paces, "processes", seconds, 1, rounds=1, first=not paces.total)
    add(paces, "processes", 0.003, 1, rounds=FEWEST_ROUNDS, first=False)
    add(paces, "this process", 0.004, 1, rounds=2 * FEWEST_ROUNDS)
    assert paces.compared("processes", "this process") == pytest.approx((0.003, 0.004))


@pytest.mark.parametrize(("fastest", "decided"), [(1.01 * SLOWER, True), (0.99 * SLOWER, False)])
def test_few_rounds_that_are_all_slower_decide(fastest, decided):
    paces, second = Paces(), 2 * FEWEST_SECONDS / FEWEST_ROUNDS
    add(paces, "processes", second, 1)
    add(paces, "this process", 3 * second, 1, rounds=FEWEST_SLOWER - 2)
    add(paces, "this process", fastest * second, 1, rounds=1, first=False)
    assert paces.compared("processes", "this process") is None
    add(paces, "this process", 3 * second, 1, rounds=1, first=False)
    expected = pytest.approx((second, 3 * second)) if decided else None
    assert paces.compared("processes", "this process") == expected


def test_first_round_in_a_place_counts_not():
    paces = Paces()
    add(paces, "processes", LONG_SECONDS, 1, rounds=FEWEST_LONG - 1)
    assert not paces.known("processes")
    add(paces, "processes", LONG_SECONDS, 1, rounds=1, first=False)
    assert paces.known("processes")


def test_rounds_with_evaluation_are_compared_apart():
    paces, second = Paces(), FEWEST_SECONDS
    add(paces, "processes", second, 1)
    add(paces, "this process", second, 1, evaluates=True)
    assert paces.compared("processes", "this process") is None
    add(paces, "processes", 2 * second, 1, evaluates=True, first=False)
    assert paces.compared("processes", "this process") == pytest.approx((2 * second, second), rel=1e-6)


def test_forgotten_rounds_count_only_in_the_total():
    paces = Paces()
    add(paces, "processes", FEWEST_SECONDS, 1)
    paces.forget("processes")
    assert not paces.known("processes")
    add(paces, "processes", 1.0, 1)  # the first round in a place, again, is no measurement
    assert paces.seconds("processes") == pytest.approx(1.0)
    assert paces.total == pytest.approx(FEWEST_ROUNDS * (FEWEST_SECONDS + 1.0))


def test_rounds_without_cost_are_never_enough():
    """For example, rounds in which no device trains."""
    paces = Paces()
    add(paces, "processes", FEWEST_SECONDS, 0)
    assert not paces.known("processes")
