"""Inference by TFLite's own convolutions, for the files that only infer.

A trainable file multiplies matrices in place of convolutions, which is faster with variable weights. With constant weights,
LiteRT's convolutions take a half to a third of that time, and quantize to 8 bits. So an export keeps `infer` once more, as a
small file whose weights are inputs, in its metadata; `odt_sim.model.inference_only` makes constants of them.
"""

import tensorflow as tf

from odt_sim.export.convert import convert
from odt_sim.export.inlining import inlined
from odt_sim.export.signatures import Program, Signatures, emitted, handle

CONVOLUTIONS = frozenset({"Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"})
NATIVE = CONVOLUTIONS | {"BiasAdd", "MatMul", "Relu", "MaxPool", "AvgPool", "Pad"}


def native_inference(program: Program) -> bytes | None:
    """Return a file with `infer` alone, from `x` and the weights `a0..aN` that it reads; None if it has no convolution."""
    trace = inlined(program.traces["infer"])
    operations = trace.live_operations(())
    if not any(op.type in CONVOLUTIONS for op in operations) or any(map(_pads_by_list, operations)):
        return None
    weights = {handle(v): tf.TensorSpec(v.shape, v.dtype, f"a{i}") for i, v in enumerate(program.weights)}
    states = {handle(v): v.numpy() for v in program.states}
    function = emitted("infer", trace, operations, states, weights, native=NATIVE)
    module = tf.Module()
    module.variables_of_model = []
    return convert(Signatures(module, {"infer": function}, ()))


def _pads_by_list(op: tf.Operation) -> bool:
    """Return whether an op has explicit padding or channels first, which TFLite lacks."""
    return op.type in CONVOLUTIONS and (op.get_attr("padding") == b"EXPLICIT" or op.get_attr("data_format") != b"NHWC")
