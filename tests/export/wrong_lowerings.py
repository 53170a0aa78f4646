"""Wrong lowerings, for tests that they are found."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from odt_sim.export.lowering.registry import LOWERINGS, tensor_of


def scaled(op_type: str) -> Callable[..., Any]:
    """Return a wrong lowering, whose floats are 2% too large."""
    right = LOWERINGS.get(op_type, lambda op, inputs, memo: [op_of(op, inputs)])

    def wrong(op: Any, inputs: Any, memo: Any) -> Any:
        values = [tensor_of(value) for value in right(op, inputs, memo)]
        return [value * 1.02 if value.dtype == tf.float32 else value for value in values]

    return wrong


def op_of(op: Any, inputs: Any) -> Any:
    return getattr(tf.raw_ops, op.type)(**dict(zip([a.name for a in op.op_def.input_arg], inputs, strict=True)))
