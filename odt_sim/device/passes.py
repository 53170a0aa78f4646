"""A device's passes over its training examples, in random orders."""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Rows
from odt_sim.device.examples import Examples
from odt_sim.device.orders import Orders
from odt_sim.device.random import generator_for

FIRST = ("batches", 0)
"""The purpose and the epoch of a device's first pass in a round."""


class _FirstPass(NamedTuple):
    """The first pass over examples: the examples, their order, and the rows in that order."""

    examples: Examples
    order: NDArray[np.int64]
    x: Rows
    y: Rows


class Passes:
    """The orders of a device's passes, which depend on the seed, the device, the round, the purpose and the epoch.

    It has no reference to the device: a cycle would keep the device's weights until the next garbage collection.
    """

    def __init__(self, seed: int, device: int) -> None:
        """Draw no order yet.

        Args:
            seed: The run's seed.
            device: The device's id.
        """
        self._seed, self._device = seed, device
        self._orders: dict[tuple[str, int, int], Orders] = {}
        self._first: _FirstPass | None = None  # if prepared

    def order(self, purpose: str, round: int, epoch: int, examples: int) -> NDArray[np.int64]:
        """Return the positions of all examples in the order of a pass."""
        return self._orders_of(purpose, round, examples).of(epoch)

    def draw_ahead(self, round: int, examples: int, epochs: int) -> None:
        """Draw the orders of a round's first epochs now; `order` returns them later."""
        purpose, _ = FIRST
        self._orders_of(purpose, round, examples).draw_ahead(epochs)

    def gather_ahead(self, examples: Examples, round: int, count: int) -> None:
        """Gather the first `count` rows of a round's first pass now; `take` returns them later."""
        if self._first is None:
            self._first = _FirstPass(examples, *self._gathered(examples, *FIRST, round, count))

    def take(
        self, examples: Examples, purpose: str, round: int, epoch: int, count: int
    ) -> tuple[NDArray[np.int64], Rows, Rows]:
        """Return the first `count` positions of a pass, and the rows `x` and `y` at these positions."""
        first = self._first if (purpose, epoch) == FIRST else None
        if first and examples is first.examples and count <= len(first.order):
            self._first = None
            return first.order[:count], first.x[:count], first.y[:count]
        return self._gathered(examples, purpose, epoch, round, count)

    def _orders_of(self, purpose: str, round: int, examples: int) -> Orders:
        key = purpose, round, examples  # a strategy may replace a device's examples
        if key not in self._orders:
            generator = partial(generator_for, self._seed, self._device, round, purpose, 0)
            self._orders[key] = Orders(generator, examples)
        return self._orders[key]

    def _gathered(
        self, examples: Examples, purpose: str, epoch: int, round: int, count: int
    ) -> tuple[NDArray[np.int64], Rows, Rows]:
        order = self.order(purpose, round, epoch, len(examples))[:count]
        return order, *examples.take(order)
