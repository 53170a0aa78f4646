"""The Gini coefficient: known answers and its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.metrics.fleet import gini


def test_known_answers():
    assert gini(np.array([3, 3, 3])) == 0
    assert gini(np.array([0, 0, 0, 8])) == 0.75
    assert gini(np.array([1, 3])) == 0.25
    assert gini(np.zeros(4)) is None
    assert gini(np.zeros(0)) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any))
def test_it_is_half_the_relative_mean_difference(counts):
    values = np.array(counts, np.float64)
    pairs = np.abs(values[:, None] - values).mean()
    assert gini(values) == pytest.approx(pairs / (2 * values.mean()))
