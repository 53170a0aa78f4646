"""Parts of tensors."""

import tensorflow as tf

from odt_sim.export.importing.registry import Operator, Value, imports
from odt_sim.export.lowering.registry import Refusal


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
