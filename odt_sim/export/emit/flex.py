"""Export the Flex flavour: traced functions as TensorFlow runs them, with TensorFlow's checkpoints.

Nothing is lowered: ops without a built-in kernel become Flex ops, except for those that the converter loses or
refuses. The signatures `save` and `restore` and the single-file checkpoint format follow "On-Device Training with
TensorFlow Lite", for apps written after that guide.
"""

from collections.abc import Mapping, Sequence
from string import ascii_letters
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.emit.signatures import Program, Signatures, Variable, copies, handle, numbered, reader, writer
from odt_sim.export.keras.parameters import parameter_names, unique, weights_of
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.emission import argument
from odt_sim.export.trace.tracing import Function, named
from odt_sim.model.reading.graph import ACTIVATIONS

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


CHECKPOINT_PATH = tf.TensorSpec([], tf.string, "checkpoint_path")


def checkpoint_of(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, generators: Sequence[Variable]
) -> dict[str, Variable]:
    """Return the variables of a training checkpoint by name.

    These are the weights under their parameter names, the optimizer's slots as `optimizer/...`, and the states of random
    layers as `random_state/0`, ... Keras' names of the last two depend on which objects the process created before.
    """
    slots = [v for v in optimizer.variables if v is not optimizer.learning_rate]
    names = parameter_names(model)
    names += [f"optimizer/{v.path.partition('/')[2]}" for v in slots]
    names += [f"random_state/{i}" for i in range(len(generators))]
    return dict(zip(unique(names), [*weights_of(model), *slots, *generators], strict=True))


def flex_signatures(program: Program, checkpoint: Mapping[str, Variable]) -> Signatures:
    """Return copies of all signatures that use new variables with the current values.

    `parameters` and `set_parameters` (arrays `a0..aN`), `save` and `restore` (a checkpoint), and, if there are offsets,
    `set_gradient_offset` are added.
    """
    weights, states, offsets = copies(program.weights, "a"), copies(program.states, "s"), copies(program.offsets, "b")
    inputs = {handle(v): tf.Variable(v.numpy(), name=name) for name, v in program.inputs.items()}
    variables = {**weights, **states, **offsets, **inputs}
    names = {handle(v): name for name, v in program.inputs.items()}
    functions = {key: _copied(trace, variables, names) for key, trace in program.traces.items()}
    arrays = program.weight_names
    functions["parameters"], functions["set_parameters"] = reader(weights, arrays), writer(weights, arrays)
    if offsets:
        functions["set_gradient_offset"] = writer(offsets, numbered("b", offsets))
    saved = {name: variables[handle(v)] for name, v in checkpoint.items()}
    functions["save"], functions["restore"] = _save(saved), _restore(saved)
    module = tf.Module()
    module.variables_of_model = list(variables.values())
    return Signatures(module, functions, random_states=())


def _copied(trace: Trace, variables: Mapping[int, tf.Variable], inputs: Mapping[int, str]) -> Function:
    """Return the function of a trace; variables that are inputs are assigned before they are read."""
    read = set(trace.variables.values())
    given = {name: variables[key] for key, name in inputs.items() if key in read}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        for name, variable in given.items():
            variable.assign(values[name])
        return copied_graph(trace, values, variables)

    return named(function, [*trace.arguments.values(), *(tf.TensorSpec(v.shape, v.dtype, k) for k, v in given.items())])


def _save(checkpoint: Mapping[str, tf.Variable]) -> Function:
    """Return a function that writes variables into one file."""

    def save(checkpoint_path: tf.Tensor) -> dict[str, tf.Tensor]:
        data = [v.read_value() for v in checkpoint.values()]
        tf.raw_ops.Save(filename=checkpoint_path, tensor_names=list(checkpoint), data=data)
        return {"checkpoint_path": checkpoint_path}

    return named(save, [CHECKPOINT_PATH])


def _restore(checkpoint: Mapping[str, tf.Variable]) -> Function:
    """Return a function that restores what `save` wrote.

    All tensors are read and their shapes checked before the first assignment: a wrong file changes nothing.
    """
    variables: Sequence[tf.Variable] = list(checkpoint.values())

    def restore(checkpoint_path: tf.Tensor) -> dict[str, tf.Tensor]:
        tensors = tf.raw_ops.RestoreV2(
            prefix=checkpoint_path,
            tensor_names=list(checkpoint),
            shape_and_slices=[""] * len(variables),
            dtypes=[v.dtype for v in variables],
        )
        tensors = [tf.ensure_shape(tensor, v.shape) for tensor, v in zip(tensors, variables, strict=True)]
        with tf.control_dependencies(tensors):
            for tensor, variable in zip(tensors, variables, strict=True):
                variable.assign(tensor)
        return dict(zip(checkpoint, tensors, strict=True))

    return named(restore, [CHECKPOINT_PATH])
