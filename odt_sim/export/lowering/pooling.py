"""The gradient of average pooling."""

import tensorflow as tf

from odt_sim.export.lowering.max_pooling import pooling_windows
from odt_sim.export.lowering.registry import Memo, Value, lowers
from odt_sim.export.lowering.windows import assembled, elements, padded, scattered, sum_of


@lowers("AvgPoolGrad")
def avg_pool_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: the sum over its windows of dY / (the number of the window's elements inside the image)."""
    gradient = inputs[1]
    windows = pooling_windows(op, op.outputs[0].shape)
    if windows.splits:
        size = windows.size[0] * windows.size[1]
        return [assembled([gradient * (1.0 / size)] * size, windows)]
    inside = padded(tf.ones([1, *windows.image, 1]), windows)
    number = sum_of(elements(inside, windows))
    return [scattered([gradient / number] * len(windows.offsets), windows)]
