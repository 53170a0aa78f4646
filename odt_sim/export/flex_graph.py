"""Copies a traced graph as it is, for an interpreter that runs Flex ops."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.graph import argument

MOST_AXES = 6  # of a tensor that XNNPACK takes, which the interpreter uses by default


def copied_graph(
    trace: Trace, inputs: Mapping[str, tf.Tensor], variables: Mapping[int, tf.Variable]
) -> dict[str, tf.Tensor]:
    """Copies a traced function into the current graph.

    Args:
        trace: The traced function.
        inputs: The new tensor for each of its arguments, by name.
        variables: For the id of each captured handle the variable that takes its place.

    Returns:
        The outputs by name.

    Raises:
        ExportError: It reads a variable that nothing takes the place of, or makes a tensor of too many axes.
    """
    graph, new = trace.concrete.graph, tf.compat.v1.get_default_graph()
    constants = {placeholder.op.name: outer for outer, placeholder in graph.captures}
    replaced = {}
    for op in graph.get_operations():
        _check_axes(trace, op)
        if op.type == "Placeholder":
            replaced[op.outputs[0].name] = new.capture(argument(trace, op, inputs, variables, constants))
    definition = graph.as_graph_def()
    _replace_erfc(definition)
    for node in definition.node:
        node.attr.pop("_gradient_op_type", None)  # names a Python function that only the traced graph knows
    outputs = trace.concrete.structured_outputs
    tensors = tf.graph_util.import_graph_def(definition, replaced, [t.name for t in outputs.values()], name="")
    return dict(zip(outputs, tensors, strict=True))


def _check_axes(trace: Trace, op: tf.Operation) -> None:
    most = max((t.shape.rank or 0 for t in op.outputs), default=0)
    if most > MOST_AXES:
        expected = f"where Flex ops run {MOST_AXES} at most"
        raise ExportError(f"{trace.where(op)}: makes a tensor of {most} axes, {expected}; use flavour='builtin'")


def _replace_erfc(definition: Any) -> None:
    """Puts 1 - erf(x), which has a Flex op, in place of erfc(x), which has none, in a `GraphDef`."""
    for node in [node for node in definition.node if node.op == "Erfc"]:
        one, erf = definition.node.add(), definition.node.add()
        erf.CopyFrom(node)
        erf.name, erf.op = f"{node.name}/erf", "Erf"
        one.name, one.op = f"{node.name}/one", "Const"
        one.attr["dtype"].CopyFrom(node.attr["T"])
        one.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1, tf.as_dtype(node.attr["T"].type)))
        node.op = "Sub"
        node.input[:] = [one.name, erf.name]
