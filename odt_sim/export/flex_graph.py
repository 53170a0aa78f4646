"""A traced function as a graph for Flex ops, without ops that the converter loses or refuses."""

from collections.abc import Mapping
from string import ascii_letters
from typing import Any

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.emission import argument
from odt_sim.model.graph import ACTIVATIONS

MOST_AXES = 6  # the limit of XNNPACK, the interpreter's default


def copied_graph(
    trace: Trace, inputs: Mapping[str, tf.Tensor], variables: Mapping[int, tf.Variable]
) -> dict[str, tf.Tensor]:
    """Copy a traced function into the current graph.

    Returns:
        The outputs by name.
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
    _separate_activations(definition)
    for node in definition.node:
        node.attr.pop("_gradient_op_type", None)  # names a Python function of the traced graph
    outputs = trace.concrete.structured_outputs
    tensors = tf.graph_util.import_graph_def(definition, replaced, [t.name for t in outputs.values()], name="")
    return dict(zip(outputs, tensors, strict=True))


def _check_axes(trace: Trace, op: tf.Operation) -> None:
    most = max((t.shape.rank or 0 for t in op.outputs), default=0)
    if most > MOST_AXES:
        expected = f"where Flex ops support at most {MOST_AXES}"
        raise ExportError(f"{trace.where(op)}: creates a tensor of {most} axes, {expected}; use flavour='builtin'")


def _replace_erfc(definition: Any) -> None:
    """Replace erfc(x), which has no Flex op, by 1 - erf(x) in a `GraphDef`."""
    for node in [node for node in definition.node if node.op == "Erfc"]:
        one, erf = definition.node.add(), definition.node.add()
        erf.CopyFrom(node)
        erf.name, erf.op = f"{node.name}/erf", "Erf"
        one.name, one.op = f"{node.name}/one", "Const"
        one.attr["dtype"].CopyFrom(node.attr["T"])
        one.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1, tf.as_dtype(node.attr["T"].type)))
        node.op = "Sub"
        node.input[:] = [one.name, erf.name]


LAYOUTS = frozenset(
    """
    BroadcastTo EnsureShape ExpandDims Identity Pack Pad PadV2 Reshape Slice Squeeze StopGradient StridedSlice Tile Transpose
    Unpack
    """.split()  # noqa: SIM905
)

SCALINGS = ("Add", "AddV2", "Mul", "RealDiv", "Sub")


def _separate_activations(definition: Any) -> None:
    """Compute each product that feeds an activation at rank 3, in a `GraphDef`.

    The converter fuses an activation into a product of rank 2, and loses it if there is no bias between them and the
    weights are variables.
    """
    activated = _before_activations(definition)
    kinds = {"MatMul": _at_rank_3, "Einsum": _with_batch_label}
    for node in [node for node in definition.node if node.op in kinds and node.name in activated]:
        axis, product = definition.node.add(name=f"{node.name}/axis", op="Const"), definition.node.add()
        axis.attr["dtype"].type = tf.int32.as_datatype_enum
        axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0, tf.int32))
        raised = [definition.node.add(name=f"{node.name}/{i}", op="ExpandDims") for i in range(len(node.input))]
        for operand, name in zip(raised, node.input, strict=True):
            operand.input[:] = [name, axis.name]
            operand.attr["T"].CopyFrom(node.attr["T"])
        product.name, product.input[:] = f"{node.name}/product", [o.name for o in raised]
        product.attr["T"].CopyFrom(node.attr["T"])
        kinds[node.op](product, node)
        for key in set(node.attr) - {"T"}:
            del node.attr[key]
        node.op, node.input[:] = "Squeeze", [product.name]
        node.attr["squeeze_dims"].list.i[:] = [0]


def _at_rank_3(product: Any, node: Any) -> None:
    product.op = "BatchMatMulV2"
    product.attr["adj_x"].CopyFrom(node.attr["transpose_a"])
    product.attr["adj_y"].CopyFrom(node.attr["transpose_b"])


def _with_batch_label(product: Any, node: Any) -> None:
    """Make a node an einsum whose tensors have a further first axis, of size 1."""
    left, _, result = node.attr["equation"].s.decode().partition("->")
    label = next(letter for letter in ascii_letters if letter not in left)
    labels = ",".join(label + own for own in left.split(","))
    product.op = "Einsum"
    product.attr["N"].CopyFrom(node.attr["N"])
    product.attr["equation"].s = f"{labels}->{label}{result}".encode()


def _before_activations(definition: Any) -> set[str]:
    """Return the nodes whose output feeds an activation, directly or through nodes that the converter may remove.

    Such nodes rearrange values, or add or multiply by a constant, which may be 0 or 1.
    """
    constants = {node.name for node in definition.node if node.op == "Const"}
    sources = {}
    for node in definition.node:
        data = [name for name in node.input if name not in constants]
        if data and (node.op in LAYOUTS or (node.op in SCALINGS and len(data) == 1)):
            sources[node.name] = data[0]
    found = {name for node in definition.node if node.op in ACTIVATIONS for name in node.input}
    for name in list(found):
        while name in sources:
            name = sources[name]
        found.add(name)
    return found
