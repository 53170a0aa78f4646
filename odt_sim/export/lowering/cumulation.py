"""Cumulative products."""

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.open_batch import OPEN
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers


@lowers("Cumprod")
def cumprod(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y[i] = X[0] ... X[i] along an axis, by doubling: products of the last 1, 2, 4, ... numbers up to each i.

    D. Hillis and G. Steele, "Data parallel algorithms", 1986.
    """
    x, axis = inputs[0], int(known(inputs[1])) % len(inputs[0].shape)
    size = x.shape[axis]
    if size is None:
        raise Refusal("multiplies across the rows of the batch; give a batch size, or multiply along another axis")
    x = tf.reverse(x, [axis]) if op.get_attr("reverse") else x
    x = _later(x, axis, 1) if op.get_attr("exclusive") else x
    step = 1
    while step < size:
        x = x * _later(x, axis, step)
        step *= 2
    return [tf.reverse(x, [axis]) if op.get_attr("reverse") else x]


def _later(x: tf.Tensor, axis: int, step: int) -> tf.Tensor:
    """Return `x` shifted along an axis by `step` positions, with ones in front."""
    begin, length = [0] * len(x.shape), [OPEN if size is None else size for size in x.shape]
    length[axis] = max(x.shape[axis] - step, 0)
    pads = [[0, 0]] * len(x.shape)
    pads[axis] = [min(step, x.shape[axis]), 0]
    return tf.pad(tf.slice(x, begin, length), pads, constant_values=tf.ones([], x.dtype))
