"""Emit traced functions that share variables as the signatures of a trainable model.

LiteRT.js refuses a file in which any signature has an input or output of a type other than float32, int32 or uint8.
Inside the graph, types stay as traced: a step count, for example, is an int64 variable that crosses the border as
int32.

READ_VARIABLE resizes a scalar when it runs. LiteRT's CompiledModel, and therefore LiteRT.js, then returns memory
other than the result. So an additional op returns each scalar variable.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.export.lowering import Trace, emit
from odt_sim.export.lowering.ops import creation
from odt_sim.export.lowering.ops.control_flow import written
from odt_sim.export.trace.inlining import inlined
from odt_sim.export.trace.tracing import Function, unordered

PASSED = (tf.int32, tf.uint8)


def bordered(function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec]) -> Function:
    """Return the graph of a function with named arguments; integers except uint8, and booleans, cross as int32."""
    inner = {spec.name: spec.dtype for spec in arguments}

    def cast(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = function(**{name: tf.cast(value, inner[name]) for name, value in values.items()})
        return {name: _returned(output) for name, output in outputs.items()}

    return unordered(cast, [tf.TensorSpec(spec.shape, passed(spec.dtype), spec.name) for spec in arguments])


def passed(dtype: tf.DType) -> tf.DType:
    """Return the type that represents a type at the border."""
    return tf.int32 if (dtype.is_integer or dtype.is_bool) and dtype not in PASSED else dtype


def _returned(output: tf.Tensor) -> tf.Tensor:
    if output.shape.rank == 0 and _is_variable(output):
        output = tf.gather(tf.reshape(output, [1]), 0)  # the converter removes simpler copies
    return tf.cast(output, passed(output.dtype))


def _is_variable(tensor: tf.Tensor) -> bool:
    op = tensor.op
    while op.type == "Identity":
        op = op.inputs[0].op
    return bool(op.type == "ReadVariableOp")


Variable = Any
"""A variable of Keras or TensorFlow."""


@dataclass(frozen=True)
class Program:
    """Traced functions, and the variables that they read and write.

    Attributes:
        traces: The traced function of each signature; `parameters` and `restore` only if user-defined.
        weights: The model's weights, in the order `a0..aN`.
        states: Other variables, such as optimizer slots: those that are changed and read become `s0..sM`, those that are
            only read become constants.
        generators: The states that belong to random layers.
        offsets: The variables of `set_gradient_offset`, in the order `b0..bK`.
        inputs: Variables that become an input of each signature that reads them, by the input's name.
        named: Whether the file's variables keep their names, for a file without a manifest; else they are `a0`, `s0`, ...
        weight_names: The weights' names in `parameters` and `restore`; by default `a0..aN`.
    """

    traces: Mapping[str, Trace]
    weights: Sequence[Variable]
    states: Sequence[Variable] = ()
    generators: Sequence[Variable] = ()
    offsets: Sequence[Variable] = ()
    inputs: Mapping[str, Variable] = field(default_factory=dict)
    named: bool = False
    weight_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Name the weights `a0..aN` unless names are given."""
        object.__setattr__(self, "weight_names", self.weight_names or numbered("a", self.weights))

    def variables_by_name(self, slots: Sequence[int]) -> dict[str, Variable]:
        """Return the original weights and slots by their names in signatures, given the handle ids of the slots."""
        states = {handle(v): v for v in self.states}
        weights = dict(zip(self.weight_names, self.weights, strict=True))
        return weights | {name: states[key] for name, key in zip(numbered("s", slots), slots, strict=True)}


@dataclass(frozen=True)
class Signatures:
    """The functions of a trainable model.

    Attributes:
        module: The owner of the variables.
        functions: The traced function of each signature.
        random_states: The indices i of the slots `s<i>` that contain the seed and the counter of a random layer.
        slots: The handle ids of the variables that became the slots `s<i>`.
    """

    module: tf.Module
    functions: dict[str, Function]
    random_states: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()


def handle(variable: Variable) -> int:
    """Return the identity of a variable in traces: the `id` of its handle."""
    return id((variable if isinstance(variable, tf.Variable) else variable.value).handle)


def emit_signatures(program: Program, origins: dict[str, str] | None = None) -> Signatures:
    """Emit all signatures with new variables that have the current values.

    Variables that Keras created get no initializer in the file. New variables do, so a new interpreter can train
    immediately.

    Args:
        program: The traced functions.
        origins: Filled with the origins of emitted ops, see `Emission`; None for not doing so.
    """
    weights, offsets = copies(program.weights, "a", named=program.named), copies(program.offsets, "b")
    traces = {key: inlined(trace) for key, trace in program.traces.items()}
    operations = _live(traces, weights)
    written_to = [(trace, t.op.name) for key, trace in traces.items() for op in operations[key] for t in written(op)]
    changed = {trace.variables[name] for trace, name in written_to if name in trace.variables}
    slots = copies([v for v in program.states if handle(v) in changed], "s", named=program.named)
    variables = {**weights, **slots, **offsets}
    constants = {handle(v): np.asarray(v.numpy()) for v in program.states if handle(v) not in slots}
    inputs = {handle(v): tf.TensorSpec(v.shape, v.dtype, name) for name, v in program.inputs.items()}
    values = {**variables, **constants}
    functions = {
        key: emitted(key, trace, operations[key], values, inputs, origins=origins) for key, trace in traces.items()
    }
    for key, function in (("parameters", reader), ("restore", writer)):
        if key not in functions and weights:
            functions[key] = function(weights, program.weight_names)
    if slots:
        names = numbered("s", slots)
        functions["optimizer_state"], functions["restore_optimizer_state"] = reader(slots, names), writer(slots, names)
    if offsets:
        functions["set_gradient_offset"] = writer(offsets, numbered("b", offsets))
    module = tf.Module()
    module.variables_of_model = list(variables.values())
    random = {handle(v) for v in program.generators}
    random_states = tuple(i for i, key in enumerate(slots) if key in random)
    return Signatures(module, functions, random_states, tuple(slots))


def _live(traces: Mapping[str, Trace], weights: Collection[int]) -> dict[str, list[tf.Operation]]:
    """Return the ops of each trace that affect its outputs, the weights, or a variable that any trace reads."""
    kept = set(weights)
    while True:
        operations = {key: trace.live_operations(kept) for key, trace in traces.items()}
        named = [(trace.variables, op.name) for key, trace in traces.items() for op in operations[key]]
        used = {variables[name] for variables, name in named if name in variables}
        if used <= kept:
            return operations
        kept |= used


def copies(variables: Sequence[Variable], prefix: str, *, named: bool = False) -> dict[int, tf.Variable]:
    """Return a copy of each variable, by the original's handle id, named `<prefix>0`, `<prefix>1`, ...

    If `named`, the copies keep the names of the variables.
    """
    names = [v.name.partition(":")[0] if named else f"{prefix}{i}" for i, v in enumerate(variables)]
    return {handle(v): tf.Variable(v.numpy(), name=name) for v, name in zip(variables, names, strict=True)}


def emitted(
    key: str,
    trace: Trace,
    operations: list[tf.Operation],
    variables: Mapping[int, tf.Variable | NDArray[Any]],
    inputs: Mapping[int, tf.TensorSpec],
    native: Callable[[tf.Operation], bool] | None = None,
    origins: dict[str, str] | None = None,
) -> Function:
    """Return the function of a trace, with those `inputs` as arguments whose variables the trace reads.

    Args:
        key: The signature's name, for errors.
        trace: The trace.
        operations: The ops of the trace to emit, in order.
        variables: The replacements of its variables, by handle id.
        inputs: The variables that become inputs, by handle id.
        native: Returns whether an op is emitted unchanged even if it has a lowering; None for no such ops.
        origins: Filled with the origins of emitted ops, see `Emission`.
    """
    read = {trace.variables[op.name] for op in operations if op.name in trace.variables}
    replaced = {key: spec for key, spec in inputs.items() if key in read}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        used = {key: variable for key, variable in variables.items() if key in read}
        constants = {key: tf.constant(value) for key, value in used.items() if isinstance(value, np.ndarray)}
        given = {key: values[spec.name] for key, spec in replaced.items()}
        try:
            return emit(trace, operations, values, {**used, **constants, **given}, native, origins)
        except ExportError as error:
            raise ExportError(f"`{key}`: {error}") from error

    return bordered(function, [*trace.arguments.values(), *replaced.values()])


def numbered(prefix: str, variables: Collection[Any]) -> list[str]:
    """Return the names `<prefix>0`, `<prefix>1`, ... for variables."""
    return [f"{prefix}{i}" for i in range(len(variables))]


def reader(variables: Mapping[int, tf.Variable], names: Sequence[str]) -> Function:
    """Return a function that returns the variables under the given names."""

    def read() -> dict[str, tf.Tensor]:
        reads = (creation.read(v.handle, v.dtype) for v in variables.values())
        return dict(zip(names, reads, strict=True))

    return bordered(read, [])


def writer(variables: Mapping[int, tf.Variable], names: Sequence[str]) -> Function:
    """Return a function that sets the variables; its output only prevents the converter from removing it."""
    named = dict(zip(names, variables.values(), strict=True))

    def restore(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        for name, variable in named.items():
            creation.assign(variable.handle, values[name])
        return {"count": tf.constant(len(named))}

    return bordered(restore, [tf.TensorSpec(v.shape, v.dtype, name) for name, v in named.items()])
