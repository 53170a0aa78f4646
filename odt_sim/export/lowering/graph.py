"""Emits a traced graph again, op by op, with TFLite's built-in ops only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.lowering.registry import (
    INSTEAD,
    KEPT,
    LOWERINGS,
    TAKES_DEFERRED,
    Deferred,
    Lowering,
    Memo,
    Refusal,
    Value,
)

READS = ("ReadVariableOp", "ResourceGather", "VariableShape")  # whatever else takes a variable's handle writes to it


@dataclass(frozen=True)
class Trace:
    """A traced function.

    Attributes:
        concrete: The function as TensorFlow traced it; its outputs have names.
        layers: The names of the model's layers, so that an error can say where an op comes from.
    """

    concrete: tf.types.experimental.ConcreteFunction
    layers: Collection[str]

    @cached_property
    def variables(self) -> dict[str, int]:
        """For the name of each placeholder that stands for a variable, the `id` of that variable's handle."""
        captures = self.concrete.graph.captures
        return {placeholder.op.name: id(outer) for outer, placeholder in captures if outer.dtype == tf.resource}

    def live_operations(self, weights: Collection[int]) -> list[tf.Operation]:
        """Returns in order the ops that the outputs, or the variables whose handles' ids are `weights`, depend on.

        A write to any other variable is live only where something live reads it: SGD counts its steps, and nothing asks.
        """
        operations = self.concrete.graph.get_operations()
        writes = [op for op in operations if op.type not in READS and any(t.dtype == tf.resource for t in op.inputs)]
        pending = [t.op for t in self.concrete.structured_outputs.values()]
        pending += [write for write in writes if self.variables.get(write.inputs[0].op.name) in weights]
        live: set[str] = set()
        while pending:
            op = pending.pop()
            if op.name not in live:
                live.add(op.name)
                pending += [t.op for t in op.inputs]
                if op.name in self.variables:
                    pending += [write for write in writes if write.inputs[0].op.name == op.name]
        return [op for op in operations if op.name in live]

    def where(self, op: tf.Operation) -> str:
        """Returns the layer that an op comes from, or the part of the step where it comes from none."""
        # Keras opens each layer's scope twice, and TensorFlow tells the second from the first by a number.
        names = [name for part in reversed(op.name.split("/")) for name in (part.rpartition("_")[0], part)]
        layer = next((name for name in names if name in self.layers), None)
        return f"layer {layer!r}" if layer else f"{op.name!r} (in no layer: the loss, the optimizer or the step itself)"


def emit(
    trace: Trace,
    operations: list[tf.Operation],
    inputs: Mapping[str, tf.Tensor],
    variables: Mapping[int, tf.Variable | tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Emits a trace into the current graph.

    Args:
        trace: The traced function.
        operations: Those of its ops that are needed, in order.
        inputs: The new tensor for each of its arguments, by name.
        variables: For the id of each captured handle the variable that takes its place, or, where the variable is only
            read, the tensor that is read instead.

    Returns:
        The outputs by name.

    Raises:
        ExportError: An op has no built-in kernel and no lowering, or not for its attributes.
    """
    values: dict[str, Value] = {}
    memo: Memo = {}
    constants = {placeholder.op.name: outer for outer, placeholder in trace.concrete.graph.captures}
    for op in operations:
        if op.type == "Placeholder":
            outputs = [_argument(trace, op, inputs, variables, constants)]
        else:
            outputs = _emit_operation(trace, op, [values[t.name] for t in op.inputs], memo)
        values.update(zip((t.name for t in op.outputs), outputs, strict=True))
    return {name: values[t.name] for name, t in trace.concrete.structured_outputs.items()}


def _argument(
    trace: Trace,
    op: tf.Operation,
    inputs: Mapping[str, tf.Tensor],
    variables: Mapping[int, tf.Variable | tf.Tensor],
    constants: Mapping[str, tf.Tensor],
) -> tf.Tensor:
    """Returns what a placeholder stands for: a variable's handle or value, a captured constant, or an argument."""
    if op.name in trace.variables:
        variable = variables.get(trace.variables[op.name])
        if variable is None:
            raise ExportError(
                f"{trace.where(op)}: its state is no weight (random numbers have one) and cannot be exported; leave it out"
            )
        return variable.handle if isinstance(variable, tf.Variable) else variable
    return tf.constant(constants[op.name].numpy()) if op.name in constants else inputs[op.name]


def _emit_operation(trace: Trace, op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Emits one op: through its lowering, or as it is."""
    if op.type not in TAKES_DEFERRED:
        inputs = [value.tensor() if isinstance(value, Deferred) else value for value in inputs]
    if op.type == "ReadVariableOp" and inputs[0].dtype != tf.resource:
        return inputs
    if op.type in LOWERINGS:
        return _lowered(LOWERINGS[op.type], trace, op, inputs, memo)
    if op.type not in KEPT:
        raise ExportError(
            f"{trace.where(op)}: the op {op.type} has no TFLite built-in kernel and no lowering; "
            f"{INSTEAD.get(op.type, 'use another layer or setting')}, or add a lowering in odt_sim/export/lowering"
        )
    attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
    graph = tf.compat.v1.get_default_graph()
    new = graph.create_op(op.type, inputs, [t.dtype for t in op.outputs], attrs=attributes, op_def=op.op_def)
    return list(new.outputs)


def _lowered(lowering: Lowering, trace: Trace, op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    try:
        return lowering(op, inputs, memo)
    except Refusal as refusal:
        raise ExportError(f"{trace.where(op)}: the op {op.type} {refusal}") from refusal
