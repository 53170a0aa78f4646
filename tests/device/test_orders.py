"""The orders of a device's epochs."""

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from orders import orders

from odt_sim.device.training import Orders

PURPOSE = (3, 7, 2, "batches", 0)


@given(asked=st.lists(st.integers(0, 6), max_size=8), examples=st.integers(1, 40))
def test_orders_are_those_of_the_epochs_whatever_is_asked_first(asked: list[int], examples: int) -> None:
    expected = list(islice(orders(3, 7, 2, examples), 7))
    drawn = Orders(PURPOSE, examples)
    for epoch in asked:
        np.testing.assert_array_equal(drawn.of(epoch), expected[epoch])


def test_every_order_has_all_examples() -> None:
    drawn = Orders(PURPOSE, 40)
    first, second = drawn.of(0), drawn.of(1)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(40))
    assert not np.array_equal(first, second)
