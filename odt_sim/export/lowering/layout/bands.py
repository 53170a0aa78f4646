"""Convolution along an axis as matrix products of blocks with a banded kernel matrix, and the blocks as matrices.

A strided slice runs on a reference kernel. So an axis is cut into blocks of as many positions as the stride, with their
channels side by side. A block of the output depends on a few neighbouring blocks of the input, through a matrix that
repeats the kernel along a band of zeros.

XNNPACK reshapes without a copy only if the tensor and its new shape have one user each. So rows are cut and padded as
`[batch, rows, numbers]`, and joined columns have one shape, which all their products use.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.layout.windows import Windows, cut, padded_by
from odt_sim.export.lowering.ops.creation import reshaped
from odt_sim.export.lowering.registry import Memo


@dataclass(frozen=True)
class Band:
    """The dependence of an output's positions on its input's positions, along one axis.

    Block t of the output depends on the input blocks t + k for the `offsets` k.

    Attributes:
        inputs: The number of positions per input block.
        outputs: The number of positions per output block.
        blocks: The number of output blocks.
        size: The number of positions of the input.
        before: The number of zeros before the input.
        kernel: The size of the kernel.
        taps: Triples (o, j, m): position o of an output block depends through kernel element j on input position m,
            counted from the start of the input block with the same number.
    """

    inputs: int
    outputs: int
    blocks: int
    size: int
    before: int
    kernel: int
    taps: tuple[tuple[int, int, int], ...]

    @cached_property
    def offsets(self) -> list[int]:
        """The input blocks that an output block depends on, relative to its number."""
        return sorted({m // self.inputs for _, _, m in self.taps})

    @cached_property
    def used(self) -> dict[int, tuple[int, int]]:
        """The range (start, stop) of positions of an input block that an output block depends on, by offset."""
        within = {k: [m % self.inputs for _, _, m in self.taps if m // self.inputs == k] for k in self.offsets}
        return {k: (min(own), max(own) + 1) for k, own in within.items()}

    @property
    def bare(self) -> bool:
        """Whether the zeros around the input can be omitted: blocks are single positions, and each tap reaches the input."""
        return self.inputs == 1 and all(-self.blocks < m - self.before < self.size for _, _, m in self.taps)

    @property
    def input_blocks(self) -> int:
        """The number of input blocks, including zeros."""
        return self.blocks + self.offsets[-1]

    @cached_property
    def placement(self) -> NDArray[np.float32]:
        """A matrix with 1 for each tap, else 0: `[used inputs * outputs, kernel]`."""
        found = np.zeros((len(self.offsets), self.inputs, self.outputs, self.kernel), np.float32)
        for o, j, m in self.taps:
            found[self.offsets.index(m // self.inputs), m % self.inputs, o, j] = 1.0
        return np.concatenate([found[i, slice(*own)] for i, own in enumerate(self.used.values())]).reshape(
            -1, self.kernel
        )

    @property
    def trivial(self) -> bool:
        """Whether the banded kernel is the kernel itself."""
        return np.array_equal(self.placement, np.eye(self.kernel))


def forward(windows: Windows, axis: int) -> Band:
    """Return the band of a convolution: output t reads position stride t + dilation j."""
    size, stride, dilation = windows.size[axis], windows.stride[axis], windows.dilation[axis]
    taps = tuple((0, j, dilation * j) for j in range(size))
    return Band(stride, 1, windows.count[axis], windows.image[axis], windows.before[axis], size, taps)


def backward(windows: Windows, axis: int) -> Band:
    """Return the band of the input gradient of a convolution, with one position of the output gradient per block.

    Position o of the image sums the gradients of outputs (before + o - dilation j) / stride, for integer quotients.
    """
    size, stride, dilation = windows.size[axis], windows.stride[axis], windows.dilation[axis]
    before = ((size - 1) * dilation - windows.before[axis]) // stride
    places = [(o, j, windows.before[axis] + o - dilation * j) for o in range(stride) for j in range(size)]
    taps = tuple((o, j, before + place // stride) for o, j, place in places if place % stride == 0)
    return Band(1, stride, -(-windows.image[axis] // stride), windows.count[axis], before, size, taps)


Bands = tuple[Band, Band]
"""The bands of rows and columns."""

PART = 256  # numbers in one sum
FEW = 4  # tensors that XNNPACK concatenates at once
ONE_SUM = range(PART, 4 * PART + 1)  # positions per example that fit one sum


def joined_columns(x: tf.Tensor, bands: Bands, memo: Memo) -> list[tf.Tensor]:
    """Return the input with neighbouring columns side by side: one tensor for each row of a block of rows.

    Each is `[batch, blocks of rows, blocks of columns, offsets * columns per block * channels]`, without the zeros above and
    below if the rows are bare.
    """
    key = ("joined", x.ref(), bands)
    if key not in memo:
        rows, columns = bands
        width = columns.input_blocks * columns.inputs
        before, height = (0, x.shape[1]) if rows.bare else (rows.before, rows.input_blocks * rows.inputs)
        image = padded_by(x, (before, columns.before), (height, width))
        phases = reshaped(image, [-1, height // rows.inputs, rows.inputs, width * x.shape[3]])
        memo[key] = [_side_by_side(_columns(phases, i, columns)) for i in range(rows.inputs)]
    return list(memo[key])


def _side_by_side(parts: list[tf.Tensor]) -> tf.Tensor:
    """Join images of equal height and width, in the shape of the matrices for a product."""
    _, height, width, _ = parts[0].shape
    matrix = concatenated([matrices(own) for own in parts], 2)
    return reshaped(matrix, [-1, height, width, matrix.shape[2]])


def _columns(phases: tf.Tensor, phase: int, columns: Band) -> list[tf.Tensor]:
    """Return the columns at each offset in one row of each block of rows.

    Args:
        phases: `[batch, blocks of rows, rows per block, numbers]`.
        phase: The index of the row within a block.
        columns: The dependence of the output's columns on these columns.

    Returns:
        Tensors `[batch, blocks of rows, blocks of columns, numbers]`.
    """
    _, height, rows, numbers = phases.shape
    step = numbers // columns.input_blocks
    every, one = range(height), range(phase, phase + 1)
    whole_blocks = set(columns.used.values()) == {(0, columns.inputs)}
    parts = []
    for k, (first, last) in columns.used.items():
        used = range(first * step // columns.inputs, last * step // columns.inputs)
        if not whole_blocks:  # one slice for rows, columns and numbers
            own = cut(reshaped(phases, [-1, rows, columns.input_blocks, step]), one, range(k, k + columns.blocks), used)
        else:
            across = range(k * step, (k + columns.blocks) * step)
            lines = reshaped(phases, [-1, height, numbers])
            own = cut(lines, every, across) if rows == 1 else cut(phases, every, one, across)
        parts.append(reshaped(own, [-1, height, columns.blocks, len(used)]))
    return parts


def matrices(x: tf.Tensor) -> tf.Tensor:
    """Return `[batch, rows, blocks, numbers]` as a matrix per example, or several if it is long, or one for all if short.

    All products use this shape, because XNNPACK copies a tensor that its users need in several shapes.
    """
    _, rows, blocks, numbers = x.shape
    together = next((n for n in range(1, rows + 1) if rows % n == 0 and n * blocks >= PART), None)
    together = rows if rows * blocks in ONE_SUM else together
    return reshaped(x, [1, -1, numbers] if together is None else [-1, together * blocks, numbers])


def first_row(m: int, rows: Band) -> int:
    """Return the first joined row under a kernel row; negative if zeros precede it."""
    return m // rows.inputs - (rows.before if rows.bare else 0)


def rows_under(joined: tf.Tensor, m: int, rows: Band) -> tf.Tensor:
    """Return the input rows under a kernel row, one per output row, padded with zeros outside the image."""
    _, height, *sizes = joined.shape
    own = lines_from(reshaped(joined, [-1, height, prod(sizes)]), first_row(m, rows), rows.blocks)
    return reshaped(own, [-1, rows.blocks, *sizes])


def lines_from(x: tf.Tensor, first: int, height: int) -> tf.Tensor:
    """Return `height` rows of `[batch, rows, numbers]` from `first`; rows outside the tensor are zeros."""
    start, stop = max(first, 0), min(first + height, x.shape[1])
    own = cut(x, range(start, stop), range(x.shape[2]))
    around = [start - first, first + height - stop]
    return tf.pad(own, [[0, 0], around, [0, 0]]) if any(around) else own


def concatenated(parts: list[tf.Tensor], axis: int) -> tf.Tensor:
    """Concatenate tensors along an axis, a few at once, because XNNPACK supports no more."""
    if len(parts) == 1:
        return parts[0]
    groups = [tf.concat(parts[i : i + FEW], axis) for i in range(0, len(parts), FEW)] if len(parts) > FEW else parts
    return tf.concat(groups, axis)
