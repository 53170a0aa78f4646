"""The last ops before the outputs of a traced model; they decide whether an output is logits."""

import tensorflow as tf

from odt_sim.export.lowering import Trace
from odt_sim.model.names import is_one_of

PRODUCTS = {"MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"}


def endings_of(infer: Trace) -> list[list[str]]:
    """Return, for each output of a traced model, the types of the ops back to its last products with weights."""
    outputs = infer.concrete.structured_outputs
    return [_ending(output) for name, output in outputs.items() if not is_one_of(name, ("mask",))]


def _ending(output: tf.Tensor) -> list[str]:
    pending, seen, types = [output.op], set(), []
    while pending:
        op = pending.pop(0)
        if op.name not in seen and op.type not in PRODUCTS:
            seen.add(op.name)
            types += [] if _only_moves(op) else [str(op.type)]
            pending += [t.op for t in op.inputs]
    return types


def _only_moves(op: tf.Operation) -> bool:
    """Return whether an op keeps values and their last axis, as the ops around a TimeDistributed head do."""
    rank = op.outputs[0].shape.rank if op.outputs else None
    if op.type == "Transpose":
        order = tf.get_static_value(op.inputs[1])
        return order is not None and order[-1] == len(order) - 1
    if op.type == "Pack":
        return rank is not None and op.get_attr("axis") % rank != rank - 1
    return op.type in ("Const", "Identity", "Reshape", "Squeeze", "ExpandDims")
