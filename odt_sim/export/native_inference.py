"""Inference by TFLite's own convolutions, for the files that only infer.

A trainable file multiplies matrices in place of convolutions, which is faster with variable weights. With constant weights,
LiteRT's convolutions take a half to a third of that time, and quantize to 8 bits. So an export keeps `infer` once more, as a
small file whose weights are inputs, in its metadata; `odt_sim.model.inference_only` makes constants of them.
"""

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.convert import convert
from odt_sim.export.inlining import inlined
from odt_sim.export.signatures import Program, Signatures, emitted, handle

CONVOLUTIONS = frozenset({"Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"})
OTHERS = frozenset({"BiasAdd", "Relu", "MaxPool", "AvgPool", "Pad"})


def native_inference(program: Program) -> bytes | None:
    """Return a file with `infer` alone, from `x` and the weights `a0..aN` that it reads.

    Returns:
        None if it has no convolution of TFLite's, or the converter cannot write it; `infer` itself does then.
    """
    trace = inlined(program.traces["infer"])
    operations = trace.live_operations(())
    if not any(op.type in CONVOLUTIONS and is_native(op) for op in operations):
        return None
    weights = {handle(v): tf.TensorSpec(v.shape, v.dtype, f"a{i}") for i, v in enumerate(program.weights)}
    states = {handle(v): v.numpy() for v in program.states}
    module = tf.Module()
    module.variables_of_model = []
    try:
        function = emitted("infer", trace, operations, states, weights, native=is_native)
        return convert(Signatures(module, {"infer": function}, ()))
    except ExportError:
        return None


def is_native(op: tf.Operation) -> bool:
    """Return whether TFLite has an op itself: no padding by numbers, no channels first, no dilated transposed convolution.

    A product of matrices is one only if it has a bias.
    """
    if op.type == "MatMul":
        return _has_bias(op)
    if op.type not in CONVOLUTIONS:
        return op.type in OTHERS
    dilated = op.type == "Conv2DBackpropInput" and any(rate != 1 for rate in op.get_attr("dilations"))
    return not dilated and op.get_attr("padding") != b"EXPLICIT" and op.get_attr("data_format") == b"NHWC"


def _has_bias(product: tf.Operation) -> bool:
    """Return whether a variable is added to a product: the converter loses an activation of one without bias."""
    after = product.outputs[0].consumers()
    return bool(after) and all(op.type == "BiasAdd" and op.inputs[1].op.type == "ReadVariableOp" for op in after)
