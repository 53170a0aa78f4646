"""Emits traced functions that share variables as the signatures of a trainable model."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.export.inlining import inlined
from odt_sim.export.lowering import Trace, emit
from odt_sim.export.lowering.calls import written
from odt_sim.export.tracing import Function, named

Variable = Any
"""A variable of Keras or TensorFlow."""


@dataclass(frozen=True)
class Program:
    """Traced functions, and the variables that they read and write.

    Attributes:
        traces: A traced function for each signature; `parameters` and `restore` only where they are the author's own.
        weights: The model's weights, in the order `a0..aN`.
        states: What else the traces use, such as an optimizer's slots: those that they change and read become `s0..sM`, and
            those that they only read become constants.
        generators: Those of the states that are the state of a random layer.
        offsets: What `set_gradient_offset` sets, in the order `b0..bK`.
        inputs: Variables whose value is an input of each signature that reads them, by the input's name.
    """

    traces: Mapping[str, Trace]
    weights: Sequence[Variable]
    states: Sequence[Variable] = ()
    generators: Sequence[Variable] = ()
    offsets: Sequence[Variable] = ()
    inputs: Mapping[str, Variable] = field(default_factory=dict)


@dataclass(frozen=True)
class Signatures:
    """The functions of a trainable model.

    Attributes:
        module: What owns the variables.
        functions: A traced function for each signature.
        random_states: The numbers i of the slots `s<i>` that hold the seed and the count of a random layer.
    """

    module: tf.Module
    functions: dict[str, Function]
    random_states: tuple[int, ...]


def handle(variable: Variable) -> int:
    """Returns what tells a variable from others in a trace: the `id` of its handle."""
    return id((variable if isinstance(variable, tf.Variable) else variable.value).handle)


def emit_signatures(program: Program) -> Signatures:
    """Emits every signature over new variables that hold the current values.

    New ones, because only variables that were not made by Keras get an initializer in the file: so a fresh interpreter
    can train at once.

    Raises:
        ExportError: An op cannot be emitted with TFLite's built-in ops.
    """
    weights, offsets = copies(program.weights, "a"), copies(program.offsets, "b")
    traces = {key: inlined(trace) for key, trace in program.traces.items()}
    operations = _live(traces, weights)
    changed = _changed(traces, operations)
    slots = copies([v for v in program.states if handle(v) in changed], "s")
    variables = {**weights, **slots, **offsets}
    constants = {handle(v): np.asarray(v.numpy()) for v in program.states if handle(v) not in slots}
    inputs = {handle(v): tf.TensorSpec(v.shape, v.dtype, name) for name, v in program.inputs.items()}
    values = {**variables, **constants}
    functions = {key: _emitted(key, trace, operations[key], values, inputs) for key, trace in traces.items()}
    for key, function in (("parameters", reader), ("restore", writer)):
        if key not in functions and weights:
            functions[key] = function(weights, "a")
    if slots:
        functions["optimizer_state"], functions["restore_optimizer_state"] = reader(slots, "s"), writer(slots, "s")
    if offsets:
        functions["set_gradient_offset"] = writer(offsets, "b")
    module = tf.Module()
    module.variables_of_model = list(variables.values())
    random = {handle(v) for v in program.generators}
    return Signatures(module, functions, tuple(i for i, key in enumerate(slots) if key in random))


def _live(traces: Mapping[str, Trace], weights: Collection[int]) -> dict[str, list[tf.Operation]]:
    """Returns the ops of each trace that are needed: for its outputs, for the weights, or for what any trace reads."""
    kept = set(weights)
    while True:
        operations = {key: trace.live_operations(kept) for key, trace in traces.items()}
        named = [(trace.variables, op.name) for key, trace in traces.items() for op in operations[key]]
        used = {variables[name] for variables, name in named if name in variables}
        if used <= kept:
            return operations
        kept |= used


def _changed(traces: Mapping[str, Trace], operations: Mapping[str, list[tf.Operation]]) -> set[int]:
    """Returns the ids of the handles of the variables that these ops change."""
    places = [(trace, t.op.name) for key, trace in traces.items() for op in operations[key] for t in written(op)]
    return {trace.variables[name] for trace, name in places if name in trace.variables}


def copies(variables: Sequence[Variable], prefix: str) -> dict[int, tf.Variable]:
    """Returns for the handle of each variable a new one that holds its value, named `<prefix>0`, `<prefix>1`, ..."""
    return {handle(v): tf.Variable(v.numpy(), name=f"{prefix}{i}") for i, v in enumerate(variables)}


def _emitted(
    key: str,
    trace: Trace,
    operations: list[tf.Operation],
    variables: Mapping[int, tf.Variable | NDArray[Any]],
    inputs: Mapping[int, tf.TensorSpec],
) -> Function:
    """Returns the function that a trace becomes; of `inputs`, it takes those whose variables it reads."""
    read = {trace.variables[op.name] for op in operations if op.name in trace.variables}
    replaced = {key: spec for key, spec in inputs.items() if key in read}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        used = {key: variable for key, variable in variables.items() if key in read}
        constants = {key: tf.constant(value) for key, value in used.items() if isinstance(value, np.ndarray)}
        given = {key: values[spec.name] for key, spec in replaced.items()}
        try:
            return emit(trace, operations, values, {**used, **constants, **given})
        except ExportError as error:
            raise ExportError(f"`{key}`: {error}") from error

    return named(function, [*trace.arguments.values(), *replaced.values()])


def reader(variables: Mapping[int, tf.Variable], prefix: str) -> Function:
    """Returns a function that hands the variables out as `<prefix>0`, `<prefix>1`, ..."""
    return named(lambda: {f"{prefix}{i}": tf.identity(v) for i, v in enumerate(variables.values())}, [])


def writer(variables: Mapping[int, tf.Variable], prefix: str) -> Function:
    """Returns a function that takes the variables back; its output only keeps the converter from removing it."""

    def restore(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        for i, variable in enumerate(variables.values()):
            variable.assign(values[f"{prefix}{i}"])
        return {"count": tf.constant(len(variables))}

    return named(restore, [tf.TensorSpec(v.shape, v.dtype, f"{prefix}{i}") for i, v in enumerate(variables.values())])
