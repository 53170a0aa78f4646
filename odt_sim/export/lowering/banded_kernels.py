"""Convolution along an axis as products of blocks.

A product whose result has few columns leaves most of XNNPACK's kernel idle, and a slice with a step runs on a reference
kernel. So an axis is cut into blocks of neighbouring places, whose channels lie side by side: a block of the output depends
on a few neighbouring blocks of the input, through a matrix that holds the kernel at several places and zeros elsewhere.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from odt_sim.export.lowering.windows import Windows


@dataclass(frozen=True)
class Band:
    """How the places of an output depend on those of its input, along one axis.

    Block t of the output depends on the input's blocks t + k, for the `offsets` k.

    Attributes:
        inputs: The places of a block of the input.
        outputs: The places of a block of the output.
        blocks: The number of the output's blocks.
        size: The places of the input.
        before: How many zeros stand before the input.
        kernel: The size of the kernel.
        taps: Triples (o, j, m): place o of a block depends through place j of the kernel on the input's place m, counted from
            the start of the input's block of the same number.
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
        """Which blocks of the input a block of the output depends on, relative to its number."""
        return sorted({m // self.inputs for _, _, m in self.taps})

    @property
    def bare(self) -> bool:
        """Whether the zeros around the input can be left out: a block is one place, and each tap meets some of the input."""
        return self.inputs == 1 and all(-self.blocks < m - self.before < self.size for _, _, m in self.taps)

    @property
    def input_blocks(self) -> int:
        """The number of the input's blocks, zeros included."""
        return self.blocks + self.offsets[-1]

    @cached_property
    def placement(self) -> NDArray[np.float32]:
        """1 where a tap is: `[offsets * inputs * outputs, kernel]`."""
        found = np.zeros((len(self.offsets), self.inputs, self.outputs, self.kernel), np.float32)
        for o, j, m in self.taps:
            found[self.offsets.index(m // self.inputs), m % self.inputs, o, j] = 1.0
        return found.reshape(-1, self.kernel)


def forward(windows: Windows, axis: int, block: int) -> Band:
    """Returns the band of a convolution, `block` outputs to a block: output o takes place stride o + dilation j."""
    size, stride, dilation = windows.size[axis], windows.stride[axis], windows.dilation[axis]
    taps = tuple((o, j, stride * o + dilation * j) for o in range(block) for j in range(size))
    blocks = -(-windows.count[axis] // block)
    return Band(block * stride, block, blocks, windows.image[axis], windows.before[axis], size, taps)


def backward(windows: Windows, axis: int, block: int) -> Band:
    """Returns the band of the gradient of a convolution's input, `block` places of the output's gradient to a block.

    Place o of the image takes the gradient of output (before + o - dilation j) / stride, where that is a whole number.
    """
    size, stride, dilation = windows.size[axis], windows.stride[axis], windows.dilation[axis]
    before = ((size - 1) * dilation - windows.before[axis]) // stride
    places = [(o, j, windows.before[axis] + o - dilation * j) for o in range(block * stride) for j in range(size)]
    taps = tuple((o, j, before + place // stride) for o, j, place in places if place % stride == 0)
    blocks = -(-windows.image[axis] // (block * stride))
    return Band(block, block * stride, blocks, windows.count[axis], before, size, taps)
