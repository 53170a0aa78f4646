"""Large tables in blocks of rows, each of which passes through all ops of an optimizer's update while it is in a cache.

An op on a table of several megabytes reads from and writes to memory, and Adam's update takes a dozen ops. So each block
of a large slot is a separate variable: a step reads, updates and writes a block before it reads the next one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import tensorflow as tf

from odt_sim.export.lowering import creation
from odt_sim.export.lowering.creation import integers
from odt_sim.export.lowering.image_rows import ELEMENTWISE
from odt_sim.export.lowering.registry import Deferred, Value, tensor_of

ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
MAPPED = ELEMENTWISE | {"AddN", "DivNoNan", "Identity", "Log", "Pow", "Sign"}
"""Types of ops that compute each element of their output from the elements at the same position."""


@dataclass(eq=False)
class RowBlocks(Deferred):
    """A tensor `[rows, width]` that exists in blocks of rows.

    Attributes:
        rows: The number of rows of each block.
        width: The number of columns.
        compute: Emits the block with a given index.
    """

    rows: tuple[int, ...]
    width: int
    compute: Callable[[int], tf.Tensor]
    _blocks: dict[int, tf.Tensor] = field(default_factory=dict)

    def block(self, i: int) -> tf.Tensor:
        """Return a block."""
        if i not in self._blocks:
            self._blocks[i] = self.compute(i)
        return self._blocks[i]

    @cached_property
    def _whole(self) -> tf.Tensor:
        return tf.concat([self.block(i) for i in range(len(self.rows))], 0)

    def tensor(self) -> tf.Tensor:
        """Return the whole tensor."""
        return self._whole


@dataclass(frozen=True, eq=False)
class BlockedVariable:
    """A variable `[rows, width]` stored as one variable per block of rows; it replaces a handle and has its attributes.

    Attributes:
        blocks: The variables, `[rows of the block, width]`.
    """

    blocks: tuple[tf.Variable, ...]
    dtype = tf.resource
    shape = tf.TensorShape([])

    @property
    def rows(self) -> tuple[int, ...]:
        """The number of rows of each block."""
        return tuple(block.shape[0] for block in self.blocks)

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.blocks[0].shape[1])

    def ref(self) -> "BlockedVariable":
        """Return the key of the variable in dictionaries."""
        return self

    def read(self) -> RowBlocks:
        """Return the variable's value."""
        blocks = self.blocks
        return RowBlocks(self.rows, self.width, lambda i: creation.read(blocks[i].handle, blocks[i].dtype))

    def assign(self, value: Value) -> None:
        """Assign the value of the whole variable to its blocks."""
        for i, block in enumerate(self.blocks):
            creation.assign(block.handle, block_of(value, i, self.rows))


def in_blocks(compute: Callable[..., tf.Tensor], *operands: Value) -> Value:
    """Return an elementwise function of operands, in blocks if an operand is in blocks and all operands fit."""
    first = next((x for x in operands if isinstance(x, RowBlocks)), None)
    if first is None or not all(_fits(x, first) for x in operands):
        return compute(*map(tensor_of, operands))

    def block(i: int) -> tf.Tensor:
        return compute(*(tensor_of(x) if _is_number(x) else block_of(x, i, first.rows) for x in operands))

    return RowBlocks(first.rows, first.width, block)


def block_of(value: Value, i: int, rows: tuple[int, ...]) -> tf.Tensor:
    """Return a block of a tensor."""
    if isinstance(value, RowBlocks) and value.rows == rows:
        return value.block(i)
    whole, start = tensor_of(value), sum(rows[:i])
    return tf.slice(whole, integers([start, 0]), integers([rows[i], whole.shape[1]]))


def _fits(x: Value, first: RowBlocks) -> bool:
    if isinstance(x, RowBlocks):
        return x.rows == first.rows and x.width == first.width
    return _is_number(x) or tensor_of(x).shape == tf.TensorShape([sum(first.rows), first.width])


def _is_number(x: Value) -> bool:
    return not isinstance(x, RowBlocks) and tensor_of(x).shape.rank == 0
