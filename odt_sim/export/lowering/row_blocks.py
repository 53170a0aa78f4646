"""Large tables in blocks of rows, each of which goes through all ops of an optimizer's update while it is in a cache.

An op on a table of some megabytes reads it from memory and writes it there, and an update by Adam takes a dozen ops. So each
block of a large slot is a variable of its own: a step reads a block, computes its update, writes it, and takes the next one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import tensorflow as tf

from odt_sim.export.lowering import creation
from odt_sim.export.lowering.constants import integers
from odt_sim.export.lowering.image_rows import ELEMENTWISE
from odt_sim.export.lowering.registry import Deferred, Value, tensor_of

ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
MAPPED = ELEMENTWISE | {"AddN", "DivNoNan", "Identity", "Log", "Pow", "Sign"}
"""Types of ops that compute each number of their output from the numbers at its place."""


@dataclass(eq=False)
class RowBlocks(Deferred):
    """A tensor `[rows, width]` that exists in blocks of rows.

    Attributes:
        rows: The rows of each block.
        width: The numbers in a row.
        compute: Emits a block.
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
    """A variable `[rows, width]` kept as one variable per block of rows; it stands for a handle, and looks like one.

    Attributes:
        blocks: The variables, `[rows of the block, width]`.
    """

    blocks: tuple[tf.Variable, ...]
    dtype = tf.resource
    shape = tf.TensorShape([])

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of each block."""
        return tuple(block.shape[0] for block in self.blocks)

    @property
    def width(self) -> int:
        """The numbers in a row."""
        return int(self.blocks[0].shape[1])

    def ref(self) -> "BlockedVariable":
        """Return what stands for it as a key of dictionaries."""
        return self

    def read(self) -> RowBlocks:
        """Return its value."""
        blocks = self.blocks
        return RowBlocks(self.rows, self.width, lambda i: creation.read(blocks[i].handle, blocks[i].dtype))

    def assign(self, value: Value) -> None:
        """Assign all blocks of the value of the whole."""
        for i, block in enumerate(self.blocks):
            creation.assign(block.handle, block_of(value, i, self.rows))


def in_blocks(compute: Callable[..., tf.Tensor], *operands: Value) -> Value:
    """Return a function of the numbers at the same place, in blocks if an operand is and all fit it."""
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
