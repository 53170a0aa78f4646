"""The random orders in which a device passes over its training examples."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


class Orders:
    """The orders of a round's epochs, for one purpose.

    One generator draws them in turn, since making a generator takes longer than drawing an order.
    """

    def __init__(self, generator: Callable[[], np.random.Generator], examples: int) -> None:
        """Start before the first epoch, without drawing an order.

        Args:
            generator: Returns the generator before the first epoch.
            examples: The number of the device's training examples.
        """
        self._first, self._examples = generator, examples
        self._generator, self._next = generator(), 0
        self._ahead: list[NDArray[np.int64]] = []  # the orders of the first epochs, if drawn ahead

    def draw_ahead(self, epochs: int) -> None:
        """Draw the orders of the first epochs now, if none was drawn yet; `of` returns them later."""
        if not self._next:
            self._ahead = [self._draw() for _ in range(epochs)]

    def of(self, epoch: int) -> NDArray[np.int64]:
        """Return the positions of all examples in the order of an epoch; repeated calls return the same order."""
        if epoch < len(self._ahead):
            return self._ahead[epoch]
        if epoch < self._next:
            self._generator, self._next = self._first(), 0
        while self._next < epoch:  # for example after a checkpoint within a round
            self._draw()
        return self._draw()

    def _draw(self) -> NDArray[np.int64]:
        self._next += 1
        return self._generator.permutation(self._examples)
