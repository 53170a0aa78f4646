"""Ops on shapes, and ops that repeat, join, reorder or select parts of tensors."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from odt_sim.export.importing.registry import IMPORTS, Operator, Value, activated, imports
from odt_sim.export.lowering.registry import Refusal

PLAIN: dict[str, Callable[..., tf.Tensor]] = {
    "BATCH_TO_SPACE_ND": lambda x, block, crops: tf.raw_ops.BatchToSpaceND(input=x, block_shape=block, crops=crops),
    "BROADCAST_ARGS": lambda x, y: tf.raw_ops.BroadcastArgs(s0=x, s1=y),
    "BROADCAST_TO": tf.broadcast_to,
    "EXPAND_DIMS": tf.expand_dims,
    "FILL": tf.fill,
    "GATHER_ND": lambda x, indices: tf.raw_ops.GatherNd(params=x, indices=indices),
    "MATRIX_DIAG": tf.linalg.diag,
    "MATRIX_SET_DIAG": tf.linalg.set_diag,
    "PAD": lambda x, paddings: tf.raw_ops.Pad(input=x, paddings=paddings),
    "PADV2": lambda x, paddings, value: tf.raw_ops.PadV2(input=x, paddings=paddings, constant_values=value),
    "RANGE": tf.range,
    "RANK": tf.rank,
    "REVERSE_V2": tf.reverse,
    "SCATTER_ND": tf.scatter_nd,
    "SEGMENT_SUM": tf.math.segment_sum,
    "SLICE": tf.slice,
    "SPACE_TO_BATCH_ND": lambda x, block, pads: tf.raw_ops.SpaceToBatchND(input=x, block_shape=block, paddings=pads),
    "TILE": tf.tile,
    "UNSORTED_SEGMENT_SUM": tf.math.unsorted_segment_sum,
    "EMBEDDING_LOOKUP": lambda indices, table: tf.gather(table, indices),
}
"""Ops without options."""


@imports(*PLAIN)
def plain(operator: Operator) -> list[Value]:
    """Import an op without options."""
    return [PLAIN[operator.kind](*operator.inputs)]


IMPORTS.update(
    {
        "SHAPE": lambda op: [tf.raw_ops.Shape(input=op.inputs[0], out_type=op.dtypes[0])],
        "BITCAST": lambda op: [tf.bitcast(op.inputs[0], op.dtypes[0])],
        "SQUEEZE": lambda op: [tf.squeeze(op.inputs[0], _axes(op.options.squeezeDims))],
        "PACK": lambda op: [tf.stack(op.inputs, axis=op.options.axis)],
        "UNPACK": lambda op: list(tf.unstack(op.inputs[0], op.options.num, op.options.axis)),
        "CONCATENATION": lambda op: [activated(op, tf.concat(op.inputs, op.options.axis))],
        "ONE_HOT": lambda op: [tf.one_hot(*op.inputs, axis=op.options.axis)],
        "GATHER": lambda op: [
            tf.gather(*op.inputs, axis=op.options.axis, batch_dims=getattr(op.options, "batchDims", 0))
        ],
        "SPLIT": lambda op: list(tf.split(op.inputs[1], op.options.numSplits, op.inputs[0])),
        "SPLIT_V": lambda op: list(tf.split(*op.inputs, num=op.options.numSplits)),
        "TOPK_V2": lambda op: list(tf.math.top_k(*op.inputs)),
    }
)


def _axes(options: Any) -> list[int] | None:
    return [int(axis) for axis in options] if options is not None and len(options) else None


@imports("RESHAPE")
def reshape(operator: Operator) -> list[Value]:
    """Import a reshape; the new shape is an input, or, in old files, an option."""
    x, *given = operator.inputs
    if given and given[0] is not None:
        return [tf.reshape(x, given[0])]
    return [tf.reshape(x, operator.options.newShape)]


@imports("MIRROR_PAD")
def mirror_pad(operator: Operator) -> list[Value]:
    """Import padding by a reflection."""
    mode = "REFLECT" if operator.options.mode == schema.MirrorPadMode.REFLECT else "SYMMETRIC"
    return [tf.raw_ops.MirrorPad(input=operator.inputs[0], paddings=operator.inputs[1], mode=mode)]


@imports("STRIDED_SLICE")
def strided_slice(operator: Operator) -> list[Value]:
    """Import X[begin:end:stride] with Python's masks."""
    x, begin, end, strides = operator.inputs
    options = operator.options
    if getattr(options, "offset", False):
        raise Refusal("has the option `offset`, which is not supported")
    masks = {
        "begin_mask": options.beginMask,
        "end_mask": options.endMask,
        "ellipsis_mask": options.ellipsisMask,
        "new_axis_mask": options.newAxisMask,
        "shrink_axis_mask": options.shrinkAxisMask,
    }
    return [tf.raw_ops.StridedSlice(input=x, begin=begin, end=end, strides=strides, **masks)]


@imports("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(operator: Operator) -> list[Value]:
    """Import X with the part that starts at a given position replaced."""
    x, update, start = operator.inputs
    constant = tf.get_static_value(start)
    if constant is None or not (x.shape.is_fully_defined() and update.shape.is_fully_defined()):
        raise Refusal("replaces a slice whose position is not fixed")
    pairs = zip(constant, update.shape, x.shape, strict=True)
    paddings = [[int(first), int(whole - first - size)] for first, size, whole in pairs]
    inside = tf.pad(tf.ones(update.shape, tf.bool), paddings)
    return [tf.where(inside, tf.pad(update, paddings), x)]
