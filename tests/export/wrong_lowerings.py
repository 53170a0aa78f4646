"""Wrong lowerings, for tests that they are found."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from odt_sim.export.lowering.registry import LOWERINGS, tensor_of


def scaled(op_type: str) -> Callable[..., Any]:
    """Return a wrong lowering, whose floats are 2% too large."""
    right = LOWERINGS[op_type]

    def wrong(op: Any, inputs: Any, memo: Any) -> Any:
        values = [tensor_of(value) for value in right(op, inputs, memo)]
        return [value * 1.02 if value.dtype == tf.float32 else value for value in values]

    return wrong
