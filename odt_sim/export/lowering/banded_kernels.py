"""Convolution along an axis as matrix products of blocks with a banded kernel matrix.

A product with few result columns leaves most of XNNPACK's kernel idle, and a strided slice runs on a reference kernel.
So an axis is cut into blocks of neighbouring positions with their channels side by side. A block of the output depends on a
few neighbouring blocks of the input, through a matrix that repeats the kernel along a band of zeros.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from odt_sim.export.lowering.windows import Windows


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


def forward(windows: Windows, axis: int, block: int) -> Band:
    """Return the band of a convolution with `block` outputs per block: output o reads position stride o + dilation j."""
    size, stride, dilation = windows.size[axis], windows.stride[axis], windows.dilation[axis]
    taps = tuple((o, j, stride * o + dilation * j) for o in range(block) for j in range(size))
    blocks = -(-windows.count[axis] // block)
    return Band(block * stride, block, blocks, windows.image[axis], windows.before[axis], size, taps)


def backward(windows: Windows, axis: int, block: int) -> Band:
    """Return the band of the input gradient of a convolution, with `block` positions of the output gradient per block.

    Position o of the image sums the gradients of outputs (before + o - dilation j) / stride, for integer quotients.
    """
    size, stride, dilation = windows.size[axis], windows.stride[axis], windows.dilation[axis]
    before = ((size - 1) * dilation - windows.before[axis]) // stride
    places = [(o, j, windows.before[axis] + o - dilation * j) for o in range(block * stride) for j in range(size)]
    taps = tuple((o, j, before + place // stride) for o, j, place in places if place % stride == 0)
    blocks = -(-windows.image[axis] // (block * stride))
    return Band(block, block * stride, blocks, windows.count[axis], before, size, taps)
