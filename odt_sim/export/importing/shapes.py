"""Ops on shapes, and ops that repeat, join, reorder or select parts of tensors."""

from collections.abc import Callable

import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from odt_sim.export.importing.registry import Operator, Value, activated, imports
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


@imports("SHAPE")
def shape(operator: Operator) -> list[Value]:
    """Import the sizes of a tensor."""
    return [tf.raw_ops.Shape(input=operator.inputs[0], out_type=operator.dtypes[0])]


@imports("RESHAPE")
def reshape(operator: Operator) -> list[Value]:
    """Import a reshape; the new shape is an input, or, in old files, an option."""
    x, *given = operator.inputs
    if given and given[0] is not None:
        return [tf.reshape(x, given[0])]
    return [tf.reshape(x, operator.options.newShape)]


@imports("SQUEEZE")
def squeeze(operator: Operator) -> list[Value]:
    """Remove axes of size 1."""
    axes = operator.options.squeezeDims
    return [tf.squeeze(operator.inputs[0], [int(axis) for axis in axes] if axes is not None and len(axes) else None)]


@imports("PACK")
def pack(operator: Operator) -> list[Value]:
    """Stack tensors along a new axis."""
    return [tf.stack(operator.inputs, axis=operator.options.axis)]


@imports("UNPACK")
def unpack(operator: Operator) -> list[Value]:
    """Import the slices along an axis."""
    return list(tf.unstack(operator.inputs[0], operator.options.num, operator.options.axis))


@imports("CONCATENATION")
def concatenation(operator: Operator) -> list[Value]:
    """Join tensors along an axis."""
    return [activated(operator, tf.concat(operator.inputs, operator.options.axis))]


@imports("MIRROR_PAD")
def mirror_pad(operator: Operator) -> list[Value]:
    """Import padding by a reflection."""
    mode = "REFLECT" if operator.options.mode == schema.MirrorPadMode.REFLECT else "SYMMETRIC"
    return [tf.raw_ops.MirrorPad(input=operator.inputs[0], paddings=operator.inputs[1], mode=mode)]


@imports("ONE_HOT")
def one_hot(operator: Operator) -> list[Value]:
    """Import one-hot vectors."""
    indices, depth, on, off = operator.inputs
    return [tf.raw_ops.OneHot(indices=indices, depth=depth, on_value=on, off_value=off, axis=operator.options.axis)]


@imports("BITCAST")
def bitcast(operator: Operator) -> list[Value]:
    """Import a reinterpretation of the bits as another type."""
    return [tf.bitcast(operator.inputs[0], operator.dtypes[0])]


@imports("SLICE")
def slice_of(operator: Operator) -> list[Value]:
    """Import X[begin : begin + size]."""
    x, begin, size = operator.inputs
    return [tf.slice(x, begin, size)]


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


@imports("GATHER")
def gather(operator: Operator) -> list[Value]:
    """Import the slices at given indices along an axis."""
    x, indices = operator.inputs
    options = operator.options
    return [
        tf.raw_ops.GatherV2(params=x, indices=indices, axis=options.axis, batch_dims=getattr(options, "batchDims", 0))
    ]


@imports("SPLIT")
def split(operator: Operator) -> list[Value]:
    """Import equal parts along an axis."""
    axis, x = operator.inputs
    return list(tf.raw_ops.Split(axis=axis, value=x, num_split=operator.options.numSplits))


@imports("SPLIT_V")
def split_v(operator: Operator) -> list[Value]:
    """Import parts of given sizes along an axis."""
    x, sizes, axis = operator.inputs
    return list(tf.raw_ops.SplitV(value=x, size_splits=sizes, axis=axis, num_split=operator.options.numSplits))


@imports("TOPK_V2")
def top_k(operator: Operator) -> list[Value]:
    """Import the largest values and their positions."""
    return list(tf.math.top_k(*operator.inputs))


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
