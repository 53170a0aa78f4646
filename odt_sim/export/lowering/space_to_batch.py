"""Ops that move the positions of blocks into the batch and back, as for dilated convolutions of videos."""

from math import prod

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.open_batch import OPEN
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers

KERNEL = 4  # the most axes that TFLite's kernels support


def _sizes(x: tf.Tensor) -> list[int]:
    if None in x.shape[1:]:
        raise Refusal("has an axis of variable size; give the model a fixed shape")
    return [OPEN, *(int(n) for n in x.shape[1:])]


@lowers("SpaceToBatchND")
def space_to_batch(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y: each position within the blocks of padded X becomes a separate batch; axis by axis, from the last."""
    x, blocks, pads = inputs
    if len(x.shape) <= KERNEL:
        return [tf.raw_ops.SpaceToBatchND(input=x, block_shape=blocks, paddings=pads)]
    around = [[0, 0], *known(pads).tolist()]
    x = tf.pad(x, around + [[0, 0]] * (len(x.shape) - len(around)))
    for axis, block in reversed(list(enumerate(known(blocks).tolist(), 1))):
        if block > 1:
            _, *others = _sizes(x)
            before, size, after = prod(others[: axis - 1]), others[axis - 1] // block, prod(others[axis:])
            apart = reshaped(x, [OPEN, before, size, block, after])
            others[axis - 1] = size
            x = reshaped(tf.transpose(apart, [3, 0, 1, 2, 4]), [OPEN, *others])
    return [x]


@lowers("BatchToSpaceND")
def batch_to_space(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y: the positions of each block side by side again, without the cropped positions; axis by axis."""
    x, blocks, crops = inputs
    if len(x.shape) <= KERNEL:
        return [tf.raw_ops.BatchToSpaceND(input=x, block_shape=blocks, crops=crops)]
    for axis, block in enumerate(known(blocks).tolist(), 1):
        if block > 1:
            _, *others = _sizes(x)
            before, size, after = prod(others[: axis - 1]), others[axis - 1], prod(others[axis:])
            apart = reshaped(x, [block, OPEN, before, size, after])
            others[axis - 1] = size * block
            x = reshaped(tf.transpose(apart, [1, 2, 3, 0, 4]), [OPEN, *others])
    for axis, (first, last) in enumerate(known(crops).tolist(), 1):
        if first or last:
            x = tf.split(x, [first, x.shape[axis] - first - last, last], axis)[1]
    return [x]
