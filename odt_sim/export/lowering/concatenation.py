"""Concatenations that the converter would compute incorrectly."""

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("ConcatV2")
def concat(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = [X_1 X_2 ...] along an axis.

    TFLite's converter replaces the concatenation of all slices of a tensor by a reshape, whatever the axes of slicing and
    concatenation are. If these differ, the slices are stacked instead.
    """
    parts = list(op.inputs)[:-1]
    sliced, place = parts[0].op, int(known(inputs[-1])) % len(op.outputs[0].shape)
    whole = sliced.type == "Unpack" and [t.ref() for t in parts] == [t.ref() for t in sliced.outputs]
    if not whole or sliced.get_attr("axis") % len(sliced.inputs[0].shape) == place:
        return [tf.concat(inputs[:-1], place)]
    stacked = tf.stack(inputs[:-1], place)
    sizes = [-1 if size is None else size for size in op.outputs[0].shape]
    return [reshaped(stacked, sizes)]
