"""Inference by TFLite's convolutions, for inference-only files.

A trainable file computes convolutions as matrix products, which is faster with variable weights. With constant weights,
LiteRT's convolutions take a half to a third of that time, and can be quantized to 8 bits. So an export also stores a copy
of `infer` in its metadata, as a small file whose weights are inputs; `model.editing.inference_only` makes them constants.
"""

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.signatures import Program, Signatures, emitted, handle
from odt_sim.export.lowering.ops.control_flow import written
from odt_sim.export.trace.inlining import inlined

CONVOLUTIONS = frozenset({"Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"})
SHAPES, SUMS = ("Identity", "Reshape", "Squeeze", "ExpandDims"), ("Add", "AddV2", "Sub")
OTHERS = frozenset({"BiasAdd", "Relu", "MaxPool", "AvgPool", "Pad"})


def native_inference(program: Program) -> bytes | None:
    """Return a file with only `infer`, whose inputs are `x` and the weights `a0..aN` that it reads.

    Returns:
        The file's content; None if TFLite has none of its convolutions, if `infer` sets a variable, such as the state of
        random draws, or if the converter fails. Inference-only files then use the trainable file's `infer`.
    """
    trace = inlined(program.traces["infer"])
    operations = trace.live_operations(())
    if any(map(written, operations)) or not any(op.type in CONVOLUTIONS and is_native(op) for op in operations):
        return None
    weights = {handle(v): tf.TensorSpec(v.shape, v.dtype, f"a{i}") for i, v in enumerate(program.weights)}
    states = {handle(v): v.numpy() for v in program.states}
    module = tf.Module()
    module.variables_of_model = []
    try:
        function = emitted("infer", trace, operations, states, weights, native=is_native)
        return convert(Signatures(module, {"infer": function}))
    except ExportError:
        return None


def is_native(op: tf.Operation) -> bool:
    """Return whether TFLite has an op: no explicit padding, no channels first, no dilated transposed convolution.

    A matrix product counts only if it has a bias, and a transposed convolution only if no single number is added to it.
    """
    if op.type == "MatMul":
        return _has_bias(op)
    if op.type not in CONVOLUTIONS:
        return op.type in OTHERS
    if op.type == "Conv2DBackpropInput" and (_adds_number(op) or any(rate != 1 for rate in op.get_attr("dilations"))):
        return False
    return bool(op.get_attr("padding") != b"EXPLICIT" and op.get_attr("data_format") == b"NHWC")


def _has_bias(product: tf.Operation) -> bool:
    """Return whether a variable is added to a product; without bias, the converter loses the product's activation."""
    after = product.outputs[0].consumers()
    return bool(after) and all(op.type == "BiasAdd" and op.inputs[1].op.type == "ReadVariableOp" for op in after)


def _adds_number(op: tf.Operation) -> bool:
    """Return whether one number is added to an op's result; the converter makes it a bias with too few numbers."""
    users = [user for t in op.outputs for user in t.consumers()]
    return any(
        _adds_number(user)
        if user.type in SHAPES
        else user.type in SUMS and any(t.shape.num_elements() == 1 for t in user.inputs)
        for user in users
    )
