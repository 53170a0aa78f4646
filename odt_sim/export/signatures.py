"""Emits traced functions that share variables as the signatures of a trainable model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from odt_sim.export.lowering import Trace, emit
from odt_sim.export.tracing import Function, named

Variable = Any
"""A variable of Keras or of TensorFlow."""


@dataclass(frozen=True)
class Program:
    """Traced functions, and the variables that they read and write.

    Attributes:
        traces: A traced function for each signature.
        weights: The model's weights, in the order `a0..aN`.
        states: What else a step changes, such as an optimizer's slots: those that a trace reads become `s0..sM`.
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
    operations = {key: trace.live_operations(weights) for key, trace in program.traces.items()}
    read = {
        trace.variables[op.name]
        for key, trace in program.traces.items()
        for op in operations[key]
        if op.name in trace.variables
    }
    slots = copies([v for v in program.states if handle(v) in read], "s")
    variables = {**weights, **slots, **offsets}
    inputs = {handle(v): tf.TensorSpec(v.shape, v.dtype, name) for name, v in program.inputs.items()}
    functions = {key: _emitted(trace, operations[key], variables, inputs) for key, trace in program.traces.items()}
    functions["parameters"], functions["restore"] = reader(weights, "a"), writer(weights, "a")
    if slots:
        functions["optimizer_state"], functions["restore_optimizer_state"] = reader(slots, "s"), writer(slots, "s")
    if offsets:
        functions["set_gradient_offset"] = writer(offsets, "b")
    module = tf.Module()
    module.variables_of_model = list(variables.values())
    random = {handle(v) for v in program.generators}
    return Signatures(module, functions, tuple(i for i, key in enumerate(slots) if key in random))


def copies(variables: Sequence[Variable], prefix: str) -> dict[int, tf.Variable]:
    """Returns for the handle of each variable a new one that holds its value, named `<prefix>0`, `<prefix>1`, ..."""
    return {handle(v): tf.Variable(v.numpy(), name=f"{prefix}{i}") for i, v in enumerate(variables)}


def _emitted(
    trace: Trace,
    operations: list[tf.Operation],
    variables: Mapping[int, tf.Variable],
    inputs: Mapping[int, tf.TensorSpec],
) -> Function:
    """Returns the function that a trace becomes; of `inputs`, it takes those whose variables it reads."""
    read = {trace.variables[op.name] for op in operations if op.name in trace.variables}
    replaced = {key: spec for key, spec in inputs.items() if key in read}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        return emit(trace, operations, values, {**variables, **{k: values[spec.name] for k, spec in replaced.items()}})

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
