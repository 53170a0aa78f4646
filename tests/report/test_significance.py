import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odt_sim.report.significance import FEWEST_PAIRS, holm, interval, signed_rank_p

DIFFERENCES = st.lists(st.floats(-1, 1), min_size=2, max_size=20).map(np.array)


def test_six_devices_that_all_gain_have_the_smallest_p_of_six():
    assert signed_rank_p(np.arange(1.0, 7)) == pytest.approx(2 / 2**6)


def test_ties_are_evidence_for_no_difference():
    """Ties take ranks but no signs: of the 2^4 signs of the others, two are as one-sided."""
    assert signed_rank_p(np.array([0.0, 0, 1, 2, 3, 4])) == pytest.approx(2 / 2**4)
    assert signed_rank_p(np.zeros(8)) == 1.0


def test_mixed_signs_by_hand():
    """Ranks 1 to 6, only the third is a loss: W- is 3, reached by the 5 sets {}, {1}, {2}, {3}, {1, 2}."""
    assert signed_rank_p(np.array([1.0, 2, -3, 4, 5, 6])) == pytest.approx(2 * 5 / 2**6)


def test_fewer_pairs_have_no_p():
    assert signed_rank_p(np.ones(FEWEST_PAIRS - 1)) is None
    assert 2 / 2 ** (FEWEST_PAIRS - 1) > 0.05 > 2 / 2**FEWEST_PAIRS


def test_differences_equal_up_to_rounding_share_a_rank():
    exact = np.array([1.0, 1, 1, -1, -1, 2, 3])
    rounded = np.array([0.9 - 0.8, 0.8 - 0.7, 0.7 - 0.6, 0.6 - 0.7, 0.2 - 0.3, 0.4 - 0.2, 0.9 - 0.6])
    assert len(np.unique(np.abs(rounded))) > 3
    assert signed_rank_p(rounded) == signed_rank_p(exact)


def test_holm_by_hand():
    """In ascending order times 3, 2 and 1, none below the one before."""
    assert holm([0.01, 0.04, None, 0.03]) == pytest.approx([0.03, 0.06, None, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([None]) == [None]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_is_between_p_and_bonferroni(values):
    adjusted = holm(values)
    for p, larger in zip(values, adjusted, strict=True):
        assert p <= larger <= min(1.0, p * len(values)) or larger == pytest.approx(p)
    assert np.argsort(adjusted, kind="stable").tolist() == sorted(range(len(values)), key=lambda i: (adjusted[i], i))


def test_interval_of_many_devices_is_that_of_the_normal_distribution():
    values = np.random.default_rng(0).normal(0.5, 1.0, 900)
    low, high = interval([values])
    half = 1.96 * values.std() / 30
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.05 * half)


def test_equal_differences_have_an_interval_of_one_point():
    assert interval([np.full(7, 0.25)]) == (0.25, 0.25)


def test_runs_are_drawn_before_their_devices():
    """The devices of each of two runs agree, so the mean of two drawn runs is 0, a half or 1."""
    apart = interval([np.zeros(50), np.ones(50)])
    assert apart == (0.0, 1.0)
    low, high = interval([np.repeat([0.0, 1.0], 50)])  # as one run: only devices are drawn
    assert 0.39 < low < 0.42
    assert 0.58 < high < 0.61


def test_interval_is_reproducible():
    values = np.random.default_rng(1).normal(size=30)
    assert interval([values]) == interval([values.copy()])


@settings(max_examples=20)
@given(DIFFERENCES, st.floats(-3, 3))
def test_interval_moves_with_the_differences(values, shift):
    low, high = interval([values])
    assert values.min() - 1e-9 <= low <= high <= values.max() + 1e-9
    assert interval([values + shift]) == pytest.approx((low + shift, high + shift), abs=1e-9)
    assert interval([-values]) == pytest.approx((-high, -low), abs=1e-9)
