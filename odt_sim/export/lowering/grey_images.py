"""Convolution of images with one channel, if max-pooling follows.

An element of a pooling window is only as many neighbouring numbers as there are channels, so splitting and assembling
windows copies short ranges. Here, filters are the first axis and examples the last, so each element of all windows is one
long range. The convolution is one product: the weights times the pixels under each pooling window.
"""

from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.creation import reshaped
from odt_sim.export.lowering.pooling import Unpooled, first_maxima
from odt_sim.export.lowering.registry import Memo
from odt_sim.export.lowering.windows import Windows, assembled, padded_by


@dataclass(frozen=True)
class Layout:
    """The pixels under the elements of pooling windows.

    Attributes:
        windows: The windows of the convolution that the pooling uses.
        pools: The windows of the pooling, on the output of the convolution.
    """

    windows: Windows
    pools: Windows

    @property
    def exists(self) -> bool:
        """Whether this layout is possible: the pooling windows are adjacent, and the convolution's have no gaps."""
        return self.pools.splits and self.windows.dilation == (1, 1)

    @property
    def reach(self) -> tuple[int, int]:
        """The height and width of the pixels under a pooling window."""
        (rows, columns), (height, width) = self.windows.size, self.pools.size
        return rows + height - 1, columns + width - 1

    @property
    def placement(self) -> NDArray[np.float32]:
        """A matrix with 1 where a kernel element is over a pixel, else 0: `[pool elements * pixels, kernel elements]`."""
        height, width = self.reach
        offsets, pooled = self.windows.offsets, self.pools.offsets
        found = np.zeros((len(pooled), height * width, len(offsets)), np.float32)
        for e, (down, right) in enumerate(pooled):
            for k, (row, column) in enumerate(offsets):
                found[e, (down + row) * width + right + column, k] = 1.0
        return found.reshape(-1, len(offsets))


def _pixels(x: tf.Tensor, layout: Layout, memo: Memo) -> tf.Tensor:
    """Return the pixels under all pooling windows, `[1, pixels under one, rows * columns * batch]`."""
    key = ("pixels", x.ref(), layout)
    if key not in memo:
        (down, right), (rows, columns), (height, width) = layout.pools.size, layout.pools.count, layout.reach
        blocks = rows + -(-height // down) - 1, columns + -(-width // right) - 1
        image = padded_by(x, layout.windows.before, (blocks[0] * down, blocks[1] * right))
        last = tf.transpose(reshaped(image, [-1, blocks[0] * down * blocks[1] * right]))
        grid = reshaped(last, [blocks[0], down, blocks[1], right, -1])
        places = product([divmod(i, down) for i in range(height)], [divmod(j, right) for j in range(width)])
        parts = [
            grid[i : i + rows, row : row + 1, j : j + columns, column : column + 1] for (i, row), (j, column) in places
        ]
        memo[key] = tf.concat([reshaped(part, [1, 1, -1]) for part in parts], 1)
    return memo[key]


@dataclass(frozen=True)
class UnpooledGrey(Unpooled):
    """The convolution of grey images, as one tensor for each element of the pooling windows.

    Attributes:
        layout: The layout of the pixels under the elements.
        pixels: The pixels, `[1, pixels under a window, rows * columns * batch]`.
        elements: The results, each `[1, filters, rows * columns * batch]`.
    """

    layout: Layout
    pixels: tf.Tensor
    elements: list[tf.Tensor]

    @classmethod
    def of(cls, x: tf.Tensor, kernel: tf.Tensor, layout: Layout, memo: Memo) -> "UnpooledGrey":
        """Return the convolution of images `[batch, height, width, 1]` with a kernel."""
        pixels = _pixels(x, layout, memo)
        elements, filters = len(layout.pools.offsets), kernel.shape[3]
        placed = tf.matmul(tf.constant(layout.placement[np.newaxis]), reshaped(kernel, [1, -1, filters]))
        weights = tf.transpose(reshaped(placed, [elements, -1, filters]), [0, 2, 1])
        total = tf.matmul(reshaped(weights, [1, elements * filters, -1]), pixels)
        return cls(layout, pixels, tf.split(total, elements, 1))

    @cached_property
    def image(self) -> tf.Tensor:
        """The convolution, `[batch, height, width, filters]`."""
        return assembled([self._examples_first(x) for x in self.elements], self.layout.pools)

    @cached_property
    def _maxima(self) -> tf.Tensor:
        return reduce(tf.maximum, self.elements)

    @cached_property
    def pooled(self) -> tf.Tensor:
        """The pooled image, `[batch, rows, columns, filters]`."""
        return self._examples_first(self._maxima)

    def routed(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return the gradient of `image` from that of `pooled`."""
        return assembled([self._examples_first(x) for x in self._parts(gradient)], self.layout.pools)

    def kernel_gradient(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return the kernel's gradient, `[height, width, 1, filters]`, from that of `pooled`."""
        filters, elements = gradient.shape[3], len(self.elements)
        parts = tf.concat(self._parts(gradient), 1)
        product = reshaped(tf.matmul(self.pixels, parts, transpose_b=True), [-1, elements, filters])
        placed = reshaped(tf.transpose(product, [1, 0, 2]), [1, -1, filters])
        total = tf.matmul(tf.constant(self.layout.placement[np.newaxis]), placed, transpose_a=True)
        return reshaped(total, [*self.layout.windows.size, 1, filters])

    def _parts(self, gradient: tf.Tensor) -> list[tf.Tensor]:
        rows, columns = self.layout.pools.count
        turned = tf.transpose(reshaped(gradient, [-1, rows * columns, gradient.shape[3]]), [2, 1, 0])
        return first_maxima(self.elements, self._maxima, reshaped(turned, [1, gradient.shape[3], -1]))

    def _examples_first(self, x: tf.Tensor) -> tf.Tensor:
        (rows, columns), filters = self.layout.pools.count, x.shape[1]
        turned = tf.transpose(reshaped(x, [filters, rows * columns, -1]), [2, 1, 0])
        return reshaped(turned, [-1, rows, columns, filters])
