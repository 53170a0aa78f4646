"""The gradient of a depthwise convolution's output, as a slice for each kernel element and position of the input."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import tensorflow as tf

from odt_sim.export.lowering.banded_kernels import backward
from odt_sim.export.lowering.joined_columns import Bands
from odt_sim.export.lowering.registry import Memo
from odt_sim.export.lowering.windows import Windows, padded_by, part


@dataclass(frozen=True)
class ShiftedGradients:
    """Slices of the output gradient; the gradients of image and kernel share them.

    Attributes:
        gradient: The gradient, `[batch, rows, columns, channels]`.
        windows: The windows on the input.
        memo: Values shared between lowerings.
    """

    gradient: tf.Tensor
    windows: Windows
    memo: Memo

    @cached_property
    def bands(self) -> Bands:
        """The dependence of the input's rows and columns on the gradient's rows and columns."""
        return backward(self.windows, 0, 1), backward(self.windows, 1, 1)

    @property
    def taps(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield, for each kernel element, its position in a block of the input and the shift of the gradients to slice."""
        rows, columns = (sorted(band.taps, key=lambda tap: tap[1]) for band in self.bands)
        for (row, _, m), (column, _, n) in product(rows, columns):
            yield (row, column), (m, n)

    def under(self, shift: tuple[int, int]) -> tf.Tensor:
        """Return the gradients that are `shift` rows and columns from each block of the input."""
        key = ("gradients", self.gradient.ref(), self.windows, shift)
        if key not in self.memo:
            (m, n), (rows, columns) = shift, self.bands
            self.memo[key] = part(self.padded, slice(m, m + rows.blocks), slice(n, n + columns.blocks))
        return self.memo[key]

    @property
    def padded(self) -> tf.Tensor:
        """The gradient with zeros around it."""
        rows, columns = self.bands
        key = ("padded", self.gradient.ref(), rows, columns)
        if key not in self.memo:
            size = rows.input_blocks, columns.input_blocks
            self.memo[key] = padded_by(self.gradient, (rows.before, columns.before), size)
        return self.memo[key]
