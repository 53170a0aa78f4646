"""Elementwise arithmetic that TFLite has no op of its own for."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("Reciprocal", "Inv")
def reciprocal(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = 1 / X."""
    return [1.0 / inputs[0]]
