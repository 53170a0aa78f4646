"""The order and size of the shares of a round's blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.simulation.executors.shares import in_shares, in_turn


@pytest.mark.parametrize(
    ("costs", "last", "order"),
    [
        ([], 4, []),
        ([1, 3, 2], 4, [1, 2, 0]),
        ([1, 3, 2, 2], 4, [1, 2, 3, 0]),
        ([1, 9, 5, 6, 7, 8], 3, [0, 1, 2, 5, 4, 3]),
    ],
)
def test_last_blocks_begin_with_the_costliest(costs, last, order):
    assert in_turn(costs, last) == order


@pytest.mark.parametrize(
    ("costs", "devices", "workers", "shares"),
    [
        ([], [], 2, []),
        ([1], [1], 2, [[0]]),
        ([5] * 10, [1] * 10, 2, [[0, 1, 2], [3, 4, 5], [6], [7], [8], [9]]),
        ([5] * 6, [3] * 6, 1, [[0, 1], [2, 3], [4], [5]]),  # no more than eight devices at a time
        ([20, 2, 2, 2, 2, 2], [1] * 6, 2, [[0], [1, 2, 3, 4, 5]]),  # a block may cost more than a share
    ],
)
def test_shares_become_smaller(costs, devices, workers, shares):
    assert in_shares(costs, devices, workers, most_devices=8) == shares


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 32))), st.integers(1, 9))
def test_shares_contain_each_block_once_and_keep_their_limit(blocks, workers):
    costs, devices = [cost for cost, _ in blocks], [count for _, count in blocks]
    shares = in_shares(costs, devices, workers, most_devices=8)
    assert sorted(number for share in shares for number in share) == list(range(len(blocks)))
    assert all(len(share) == 1 or sum(devices[i] for i in share) <= 8 for share in shares)
    assert all(len(share) == 1 or sum(costs[i] for i in share) <= sum(costs) / workers for share in shares)
