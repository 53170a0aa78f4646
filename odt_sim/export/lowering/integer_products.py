"""Products of int8 tensors, as computed by layers after Keras' `quantize("int8")`."""

import tensorflow as tf

from odt_sim.export.lowering.registry import LOWERINGS, Memo, Refusal, Value, lowers


@lowers("BatchMatMulV3")
def integer_product(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Return X Y as int32, computed in float32.

    Sums of up to 2^24 / 127^2 = 1,040 terms are exact; longer sums are rounded to 24 bits.
    """
    if any(t.dtype != tf.int8 for t in op.inputs):
        raise Refusal("multiplies numbers other than int8; cast them to float32 first")
    product = LOWERINGS["BatchMatMulV2"](op, [tf.cast(value, tf.float32) for value in inputs], memo)[0]
    return [tf.cast(product, op.outputs[0].dtype)]
