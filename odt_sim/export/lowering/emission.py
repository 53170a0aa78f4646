"""Emit a traced graph again, op by op, with only TFLite's built-in ops."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.lowering.layout.batch_parts import BatchParts, help_training, in_parts
from odt_sim.export.lowering.layout.open_batch import ROWS_ADVICE, Probed, Probes
from odt_sim.export.lowering.ops.complex_numbers import complex_values, is_complex
from odt_sim.export.lowering.ops.control_flow import LOOPS, bodies, needed
from odt_sim.export.lowering.ops.creation import copied, copied_as_real, evaluated, folded
from odt_sim.export.lowering.registry import (
    KEPT,
    LOWERINGS,
    TAKES_DEFERRED,
    UNKNOWN_TYPES,
    Deferred,
    Memo,
    Refusal,
    Value,
    tensor_of,
    unknown,
)
from odt_sim.export.lowering.trace import Trace


class Emitted(NamedTuple):
    """The result of emitting a traced tensor.

    Attributes:
        value: The tensor's new value.
        probed: The traced tensor for several numbers of rows; empty if the number is fixed.
    """

    value: Value
    probed: Probed


@dataclass(frozen=True)
class Emission:
    """The state of emitting one trace.

    Attributes:
        memo: Values shared between lowerings.
        probes: The dependence of shapes on the rows of the batch.
        native: Returns whether an op is emitted unchanged even if it has a lowering; None for no such ops.
        in_parts: Whether images may pass through ops in parts of the batch.
        origins: Filled with the name of the traced tensor by the name of each op that was emitted for it, to trace values of
            the file back to the model; None for not doing so.
    """

    memo: Memo
    probes: Probes
    native: Callable[[tf.Operation], bool] | None = None
    in_parts: bool = False
    origins: dict[str, str] | None = None


def emit(
    trace: Trace,
    operations: list[tf.Operation],
    inputs: Mapping[str, tf.Tensor],
    variables: Mapping[int, tf.Variable | tf.Tensor],
    native: Callable[[tf.Operation], bool] | None = None,
    origins: dict[str, str] | None = None,
) -> dict[str, tf.Tensor]:
    """Emit a trace into the current graph.

    Args:
        trace: The trace.
        operations: The ops of the trace to emit, in order.
        inputs: The arguments, by name.
        variables: The replacements of the trace's variables, by handle id.
        native: Returns whether an op is emitted unchanged even if it has a lowering; None for no such ops.
        origins: See `Emission`.

    Returns:
        The outputs by name.
    """
    constants = {placeholder.op.name: outer for outer, placeholder in trace.concrete.graph.captures}
    probes = Probes.of(list(inputs.values()))
    emission = Emission({}, probes, native, in_parts=not probes.graphs and help_training(operations), origins=origins)
    values: dict[str, Emitted] = {}
    for op in operations:
        if op.type == "Placeholder":
            given = argument(trace, op, inputs, variables, constants)
            values[op.outputs[0].name] = Emitted(given, emission.probes.argument(given))
            continue
        try:
            _emit_traceably(op, values, emission)
        except Refusal as refusal:
            raise ExportError(f"{trace.where(op)}: {refusal}") from refusal
        except (TypeError, ValueError) as error:
            if not probes.graphs:
                raise
            raise ExportError(f"{trace.where(op)}: the op {op.type} {ROWS_ADVICE}") from error
    return {name: tensor_of(values[t.name].value) for name, t in trace.concrete.structured_outputs.items()}


def argument(
    trace: Trace,
    op: tf.Operation,
    inputs: Mapping[str, tf.Tensor],
    variables: Mapping[int, tf.Variable | tf.Tensor],
    constants: Mapping[str, tf.Tensor],
) -> tf.Tensor:
    """Return the tensor for a placeholder: a variable's handle or value, a captured constant, or an argument."""
    if op.name in trace.variables and not _is_table(op):
        variable = variables.get(trace.variables[op.name])
        if variable is None:
            raise ExportError(
                f"{trace.where(op)}: reads a variable that is not a weight of the model; make it a weight of a layer"
            )
        return variable.handle if isinstance(variable, tf.Variable) else variable
    if op.name not in constants:
        return inputs[trace.arguments[op.name].name]
    return constants[op.name] if _is_table(op) else tf.constant(constants[op.name].numpy())


def _is_table(op: tf.Operation) -> bool:
    """Return whether a placeholder is a look-up table."""
    return any(user.type == "LookupTableFindV2" for user in op.outputs[0].consumers())


def _emit_traceably(op: tf.Operation, values: dict[str, Emitted], emission: Emission) -> None:
    """Emit one op; for `origins`, in a scope of its own, because the converter changes names that are used twice."""
    if emission.origins is None:
        _emit_operation(op, values, emission)
        return
    with tf.name_scope(f"traced_{len(values)}_"):
        _emit_operation(op, values, emission)
    for traced in op.outputs:
        value = values[traced.name].value
        if isinstance(value, tf.Tensor) and len(value.op.outputs) == 1:
            emission.origins.setdefault(value.op.name, traced.name)


def _emit_operation(op: tf.Operation, values: dict[str, Emitted], emission: Emission) -> None:
    """Emit one op, through its lowering or unchanged, and add its outputs to `values`."""
    inputs = [values[t.name] for t in op.inputs]
    outputs = _loop(op, inputs, emission) if op.type in LOOPS else _outputs(op, inputs, emission)
    values.update(zip((t.name for t in op.outputs), outputs, strict=True))


def _loop(op: tf.Operation, inputs: list[Emitted], emission: Emission) -> list[Emitted]:
    """Emit a loop as WHILE, which captures the handles of variables."""
    if emission.probes.graphs:
        raise Refusal(
            "is a loop whose number of iterations depends on data; give a batch size, or a fixed number of iterations"
        )
    carried = [i for i, t in enumerate(op.inputs) if t.dtype != tf.resource]

    def run(body: tf.Graph, given: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
        inner = Emission({}, Probes())
        current = {**dict(enumerate(own.value for own in inputs)), **dict(zip(carried, given, strict=True))}
        values = {t.name: Emitted(current[i], ()) for i, t in enumerate(body.inputs)}
        for own in needed(body):
            _emit_operation(own, values, inner)
        return [tensor_of(values[t.name].value) for t in body.outputs]

    if not bodies(op):
        raise unknown(op)
    condition, body = bodies(op)
    results = tf.while_loop(
        lambda *given: run(condition, given)[0],
        lambda *given: [run(body, given)[i] for i in carried],
        [tensor_of(inputs[i].value) for i in carried],
    )
    after = dict(zip(carried, results, strict=True))
    return [Emitted(after.get(i, own.value), ()) for i, own in enumerate(inputs)]


def _outputs(op: tf.Operation, inputs: list[Emitted], emission: Emission) -> list[Emitted]:
    probed = emission.probes.outputs(op, [own.probed for own in inputs])
    values = emission.probes.constants(probed)
    if values is None:
        emission.probes.complete(op.outputs, probed)
        values = _values(op, [own.value for own in inputs], emission)
        emission.probes.complete(values, probed)
    return [Emitted(value, own) for value, own in zip(values, probed, strict=True)]


def _values(op: tf.Operation, inputs: list[Value], emission: Emission) -> list[Value]:
    if is_complex(op, inputs):
        return _complex(op, inputs, emission)
    if emission.in_parts:
        parts = in_parts(op, inputs, emission.memo, lambda own: _lowered(op, own, emission))
        if parts is not None:
            return parts
        inputs = [value.tensor() if isinstance(value, BatchParts) else value for value in inputs]
    return _lowered(op, inputs, emission)


def _lowered(op: tf.Operation, inputs: list[Value], emission: Emission) -> list[Value]:
    if op.type not in TAKES_DEFERRED:
        inputs = [tensor_of(value) for value in inputs]
    if op.type == "ReadVariableOp" and inputs[0].dtype != tf.resource:
        return inputs
    constants = None if any(isinstance(value, Deferred) for value in inputs) else folded(op, inputs)
    if constants is not None:
        return constants
    if emission.native and emission.native(op):
        return copied(op, [tensor_of(value) for value in inputs])
    if op.type in LOWERINGS:
        try:
            return LOWERINGS[op.type](op, inputs, emission.memo)
        except Refusal as refusal:
            raise Refusal(f"the op {op.type} {refusal}") from refusal
    other = next((t.dtype for t in op.outputs if t.dtype in UNKNOWN_TYPES), None)
    if op.type not in KEPT or other is not None:
        found = [evaluated(t) for t in op.outputs]
        if found and all(value is not None for value in found):
            return [tf.constant(value, t.dtype) for value, t in zip(found, op.outputs, strict=True)]
    if op.type not in KEPT:
        raise unknown(op)
    if other is not None:
        raise Refusal(f"the op {op.type} computes in {other.name}, expected float32; cast to that, or set the dtype")
    return copied(op, inputs)


def _complex(op: tf.Operation, inputs: list[Value], emission: Emission) -> list[Value]:
    """Emit an op on complex numbers; one that applies to real and imaginary parts is lowered or copied for each."""

    def apply(parts: list[Value]) -> list[Value]:
        if op.type in LOWERINGS:
            return LOWERINGS[op.type](op, parts, emission.memo)
        return copied_as_real(op, [tensor_of(part) for part in parts])

    try:
        return complex_values(op, inputs, apply)
    except Refusal as refusal:
        raise Refusal(f"the op {op.type} {refusal}") from refusal
