import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.data.devices.split import IndexLists


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8))
def test_round_trip(parts):
    rows = IndexLists.of([np.array(part, np.int64) for part in parts])
    assert [row.tolist() for row in rows] == parts
    assert rows.sizes.tolist() == [len(part) for part in parts]
    assert [row.tolist() for row in rows[1:3]] == parts[1:3]
    assert rows.values.dtype == np.int64


def test_grouping_skips_examples_without_device():
    rows = IndexLists.grouped(np.array([1, -1, 3, 1, 0, -1]), 4)
    assert [row.tolist() for row in rows] == [[4], [0, 3], [], [2]]
    assert rows.values.tolist() == [4, 0, 3, 2]


def test_lists_are_views():
    rows = IndexLists.grouped(np.array([0, 1, 0]), 2)
    assert IndexLists.of(rows) is rows
    assert np.shares_memory(rows[0], rows.values)
    assert rows[-1].tolist() == [1]
    with pytest.raises(IndexError):
        rows[2]
