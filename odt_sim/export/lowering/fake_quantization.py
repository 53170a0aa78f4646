"""Quantization simulated in float32, for quantization-aware training, and its gradients.

B. Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only inference", CVPR 2018.
The range is shifted so that 0 is one of its steps. Gradients pass to the input inside the range, and to the ends outside.
"""

from typing import NamedTuple

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Value, lowers


class Steps(NamedTuple):
    """The steps of a quantization.

    Attributes:
        low: The lowest number.
        high: The highest number.
        size: The size of a step.
    """

    low: tf.Tensor
    high: tf.Tensor
    size: tf.Tensor


def _steps(op: tf.Operation, low: tf.Tensor, high: tf.Tensor) -> Steps:
    """Return the steps of a range, shifted so that 0 is a step."""
    first, last = float(op.get_attr("narrow_range")), 2.0 ** op.get_attr("num_bits") - 1.0
    size = (high - low) / (last - first)
    zero = tf.clip_by_value(tf.floor(first - low / size + 0.5), first, last)
    return Steps((first - zero) * size, (last - zero) * size, size)


def _range(op: tf.Operation, inputs: list[Value]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the ends of an op's range: its last two inputs, or its attributes."""
    if "Args" in op.type:
        return tf.constant(op.get_attr("min")), tf.constant(op.get_attr("max"))
    low, high = inputs[-2:]
    return low, high


@lowers("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quant(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = X clipped to the range and rounded to its steps."""
    steps = _steps(op, *_range(op, inputs))
    zero = tf.floor(0.5 - steps.low / steps.size)
    shifted = tf.clip_by_value(inputs[0], steps.low, steps.high) - steps.low
    return [tf.floor(shifted / steps.size - zero + 0.5) * steps.size]


@lowers(
    "FakeQuantWithMinMaxArgsGradient",
    "FakeQuantWithMinMaxVarsGradient",
    "FakeQuantWithMinMaxVarsPerChannelGradient",
)
def fake_quant_gradient(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY inside the range, else 0; the gradients of the ends are the sums of dY below and above."""
    gradient, x = inputs[:2]
    steps = _steps(op, *_range(op, inputs))
    below, above = x < steps.low, x > steps.high
    zero = tf.zeros_like(gradient)
    inside = tf.where(tf.logical_or(below, above), zero, gradient)
    if "Args" in op.type:
        return [inside]
    axes = list(range(len(x.shape) - 1 if "PerChannel" in op.type else len(x.shape)))
    return [inside, *(tf.reduce_sum(tf.where(outside, gradient, zero), axes) for outside in (below, above))]
