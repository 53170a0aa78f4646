"""Matrix products, and convolutions and pooling of images, `[rows, height, width, channels]`."""

from math import prod
from typing import Any

import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from odt_sim.export.importing.registry import Operator, Value, activated, fixed, imports
from odt_sim.export.lowering.registry import Refusal


@imports("FULLY_CONNECTED")
def fully_connected(operator: Operator) -> list[Value]:
    """Import Y = X W^T + b, with X reshaped to rows of as many values as W has columns."""
    x, weights, *bias = operator.inputs
    if operator.options.weightsFormat != 0 or weights.dtype != tf.float32:
        raise Refusal(f"has {weights.dtype.name} weights, or shuffled ones; expected float32")
    outputs, columns = weights.shape
    leading = [-1 if size is None else size for size in x.shape[:-1]] if x.shape.rank is not None else [-1]
    flat = x if x.shape.rank == 2 else tf.reshape(x, [-1, columns])
    product = tf.matmul(flat, weights, transpose_b=True)
    if bias and bias[0] is not None:
        product = tf.nn.bias_add(product, bias[0])
    if operator.options.keepNumDims and x.shape.rank != 2:
        if leading.count(-1) > 1 or prod(leading) == 0:
            raise Refusal("keeps several axes of variable size; use fixed sizes")
        product = tf.reshape(product, [*leading, outputs])
    return [activated(operator, product)]


@imports("BATCH_MATMUL")
def batch_matmul(operator: Operator) -> list[Value]:
    """Import a matrix product over the last two axes."""
    x, y = operator.inputs
    transposed = {"transpose_a": bool(operator.options.adjX), "transpose_b": bool(operator.options.adjY)}
    return [tf.matmul(x, y, **transposed)]


def _padding(options: Any) -> str:
    return "SAME" if options.padding == schema.Padding.SAME else "VALID"


def _strides(options: Any) -> list[int]:
    return [1, int(options.strideH), int(options.strideW), 1]


def transposed(x: tf.Tensor, order: list[int]) -> tf.Tensor:
    """Transpose a tensor; if this reverses the input's own transposition, return the original tensor."""
    before = x.op if not tf.executing_eagerly() and x.op.type == "Transpose" else None
    if before is not None:
        first = tf.get_static_value(before.inputs[1])
        if first is not None and [int(first[axis]) for axis in order] == list(range(len(order))):
            return before.inputs[0]
    return tf.transpose(x, order)


def _with_bias(operator: Operator, product: tf.Tensor) -> list[Value]:
    """Return a convolution plus its bias; zeros are dropped, because the converter adds them if there is no bias."""
    bias = operator.inputs[2] if len(operator.inputs) > 2 else None
    value = tf.get_static_value(bias) if bias is not None else None
    nothing = bias is None or (value is not None and not value.any())
    return [activated(operator, product if nothing else tf.nn.bias_add(product, bias))]


@imports("CONV_2D")
def conv_2d(operator: Operator) -> list[Value]:
    """Import a convolution; the file's filter is `[outputs, height, width, inputs]`."""
    x, kernel, options = operator.inputs[0], operator.inputs[1], operator.options
    product = tf.raw_ops.Conv2D(
        input=x,
        filter=transposed(kernel, [1, 2, 3, 0]),
        strides=_strides(options),
        padding=_padding(options),
        dilations=[1, options.dilationHFactor, options.dilationWFactor, 1],
    )
    return _with_bias(operator, product)


@imports("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(operator: Operator) -> list[Value]:
    """Import a depthwise convolution; the file's filter is `[1, height, width, channels * multiplier]`."""
    x, kernel, options = operator.inputs[0], operator.inputs[1], operator.options
    _, height, width, outputs = kernel.shape
    multiplier = int(options.depthMultiplier) or outputs // x.shape[-1]
    product = tf.raw_ops.DepthwiseConv2dNative(
        input=x,
        filter=tf.reshape(kernel, [height, width, outputs // multiplier, multiplier]),
        strides=_strides(options),
        padding=_padding(options),
        dilations=[1, options.dilationHFactor, options.dilationWFactor, 1],
    )
    return _with_bias(operator, product)


@imports("TRANSPOSE_CONV")
def transpose_conv(operator: Operator) -> list[Value]:
    """Import a convolution's gradient; the file's filter is `[outputs, height, width, inputs]`."""
    sizes, kernel, x = operator.inputs[:3]
    product = tf.raw_ops.Conv2DBackpropInput(
        input_sizes=sizes,
        filter=transposed(kernel, [1, 2, 0, 3]),
        out_backprop=x,
        strides=_strides(operator.options),
        padding=_padding(operator.options),
    )
    bias = operator.inputs[3] if len(operator.inputs) > 3 else None
    return [activated(operator, product if bias is None else tf.nn.bias_add(product, bias))]


@imports("MAX_POOL_2D", "AVERAGE_POOL_2D")
def pool_2d(operator: Operator) -> list[Value]:
    """Import pooling."""
    options = operator.options
    settings = {
        "ksize": [1, int(options.filterHeight), int(options.filterWidth), 1],
        "strides": _strides(options),
        "padding": _padding(options),
    }
    if operator.kind == "MAX_POOL_2D":
        return [activated(operator, tf.raw_ops.MaxPool(input=operator.inputs[0], **settings))]
    return [activated(operator, tf.raw_ops.AvgPool(value=operator.inputs[0], **settings))]


@imports("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(operator: Operator) -> list[Value]:
    """Import a resizing of height and width."""
    images, size = operator.inputs
    settings = {
        "align_corners": bool(operator.options.alignCorners),
        "half_pixel_centers": bool(operator.options.halfPixelCenters),
    }
    if operator.kind == "RESIZE_BILINEAR":
        return [tf.raw_ops.ResizeBilinear(images=images, size=size, **settings)]
    return [tf.raw_ops.ResizeNearestNeighbor(images=images, size=size, **settings)]


@imports("TRANSPOSE")
def transpose(operator: Operator) -> list[Value]:
    """Import a transposition."""
    x, order = operator.inputs
    return [transposed(x, [int(axis) for axis in fixed(order)])]
