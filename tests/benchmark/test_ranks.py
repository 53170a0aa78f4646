"""Ranks, the Friedman test and the critical difference, by the example of Demsar (2006)."""

import numpy as np
import pytest

from odt_sim.benchmark.ranks import Friedman, cliques, critical_difference, friedman, ranks

AUC = np.array(  # table 6: C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],  # printed as equal, but ranked 2 and 3
        [0.957, 0.978, 0.946, 0.970],
    ]
)


@pytest.fixture
def ranked():
    return np.array([ranks(row, higher_is_better=True) for row in AUC])


def test_equal_values_share_their_ranks():
    assert ranks([0.9, 0.8, 0.9, 0.7], higher_is_better=True).tolist() == [1.5, 3, 1.5, 4]
    assert ranks([0.9, 0.8, 0.9, 0.7], higher_is_better=False).tolist() == [3.5, 2, 3.5, 1]


@pytest.mark.parametrize("higher", [True, False])
def test_failed_strategies_share_the_last_ranks(higher):
    assert ranks([np.nan, 0.5, np.nan], higher_is_better=higher).tolist() == [2.5, 1, 2.5]


def test_friedman_is_that_of_the_paper(ranked):
    assert ranked.mean(axis=0).round(3).tolist() == [3.143, 2.0, 2.893, 1.964]
    found = friedman(ranked)
    assert (found.chi_square, found.f) == pytest.approx((9.28, 3.69), abs=0.006)
    assert found.p == pytest.approx(0.0198, abs=1e-4)


@pytest.mark.parametrize(("tasks", "chance"), [(2, 1 / 6), (5, 1 / 6**4)])
def test_friedman_of_tasks_that_agree_has_the_chance_that_random_rankings_do(tasks, chance):
    found = friedman(np.array([[1.0, 2, 3]] * tasks))
    assert found == Friedman(2.0 * tasks, np.inf, pytest.approx(chance))


def test_friedman_needs_two_tasks():
    assert friedman(np.array([[1.0, 2, 3]])) is None


@pytest.mark.parametrize(("strategies", "q"), [(2, 1.960), (4, 2.569), (7, 2.949), (10, 3.164)])
def test_critical_difference_has_the_quantiles_of_the_paper(strategies, q):
    expected = q * (strategies * (strategies + 1) / (6 * 14)) ** 0.5
    assert critical_difference(strategies, 14) == pytest.approx(expected, rel=3e-4)


def test_critical_difference_of_the_example():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_cliques_are_the_largest_groups_within_the_difference():
    assert cliques([1.0, 2.0, 3.0, 6.0], 1.0) == [(0, 1), (1, 2)]
    assert cliques([1.0, 1.5, 2.0, 6.0], 1.0) == [(0, 2)]
    assert cliques([1.0, 3.0], 1.0) == []


def test_a_mean_over_fewer_devices_ranks_after_those_over_more():
    """Diverged devices drop out of the mean."""
    assert ranks([0.9, 0.8, 0.7, np.nan], higher_is_better=True, devices=[5, 6, 6, 0]).tolist() == [3, 1, 2, 4]
    assert ranks([0.1, 0.2], higher_is_better=False, devices=[5, 6]).tolist() == [2, 1]
