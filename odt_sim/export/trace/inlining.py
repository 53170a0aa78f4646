"""Inline a traced graph: replace calls by the ops of the called function and conditions by selections, and unroll loops.

Afterwards, unused ops can be dropped individually, and a fixed batch size lets TensorFlow infer all shapes. Variables
that every function sets before reading them, such as sums of metrics, become tensors.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.stateful_random import DRAWS, drawn, draws, new_state
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.control_flow import (
    CASES,
    CHANGES,
    CONDITIONS,
    LOOPS,
    OPTIONALS,
    Kept,
    Optional,
    bodies,
    kept_by,
    needed,
    of_branch,
    optional,
    plain,
    selected,
    unrolled,
    write_where,
    written,
)
from odt_sim.export.lowering.ops.creation import copied, evaluated, folded
from odt_sim.export.lowering.ops.tensor_lists import LISTS, MAKES_LISTS, TensorList
from odt_sim.export.lowering.registry import Refusal, unknown
from odt_sim.export.trace.tracing import named
from odt_sim.export.trace.user_parameters import is_generator

_KNOWN = {*CHANGES, "ReadVariableOp"}


@dataclass
class TemporaryVariable:
    """The replacement of a variable within one function: a tensor that changes.

    Attributes:
        value: The current value.
    """

    value: tf.Tensor

    def outputs(self, op: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Return the outputs of an op on the variable, given the op's other `inputs`."""
        if op.type == "ReadVariableOp":
            return [self.value]
        self.value = CHANGES[op.type](self.value, *inputs)
        return []


def temporary_variables(traces: Iterable[Trace], metrics: Collection[int]) -> set[int]:
    """Return the handle ids of the variables that every trace assigns before any other use.

    The variables in `metrics`, handle ids, need not be assigned first.
    """
    set_first: set[int] = set()
    others: set[int] = set()
    for trace in traces:
        for key, operations in _touching(trace).items():
            first = operations[0].type == "AssignVariableOp" or key in metrics
            plain = first and _KNOWN.issuperset(op.type for op in operations)
            (set_first if plain else others).add(key)
    return set_first - others


def _touching(trace: Trace) -> dict[int, list[tf.Operation]]:
    """Return the ops that use each variable's handle, in order."""
    operations: dict[int, list[tf.Operation]] = {}
    for op in trace.concrete.graph.get_operations():
        for t in op.inputs:
            if t.op.name in trace.variables:
                operations.setdefault(trace.variables[t.op.name], []).append(op)
    return operations


OLD_CALL = (
    "calls a function in a form of TensorFlow 1, as Keras' loss ctc does; for CTC, compile with the function "
    "odt_sim.export.keras.ctc.ctc as loss, or export the Keras model itself by export_model"
)

Value = Any
"""A `tf.Tensor`, a `TemporaryVariable`, or a value kept for a condition's gradient."""


def inlined(trace: Trace, batch_size: int | None = None, temporary: Mapping[int, tf.Variable] | None = None) -> Trace:
    """Return the same function without calls, conditions and loops; only loops of an open number of iterations stay.

    Args:
        trace: The traced function.
        batch_size: The size of every open first axis; None leaves it open.
        temporary: Variables by handle id that become tensors, initially zero; see `temporary_variables`.
    """
    graph, replaced = trace.concrete.graph, temporary or {}
    inlines = any(bodies(op) or op.type in MAKES_LISTS or op.type in DRAWS for op in graph.get_operations())
    if batch_size is None and not replaced and not inlines:
        return trace
    state = new_state() if draws(graph) else None
    whole = _Origin(trace, state)
    arguments = {name: _fixed(spec, batch_size) for name, spec in trace.arguments.items()}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        given = {name: values[spec.name] for name, spec in arguments.items()}
        given |= {placeholder.op.name: outer for outer, placeholder in graph.captures}
        for name, key in trace.variables.items():
            if key in replaced:
                given[name] = TemporaryVariable(tf.zeros(replaced[key].shape, replaced[key].dtype))
        tensors = _body(graph, {t.name: given[t.op.name] for t in graph.inputs}, whole)
        return {name: tf.identity(tensors[t.name]) for name, t in trace.concrete.structured_outputs.items()}

    kept = (*trace.states, *filter(is_generator, graph.variables), *([] if state is None else [state]))
    return Trace(named(function, list(arguments.values())), trace.layers, kept)


def _fixed(spec: tf.TensorSpec, batch_size: int | None) -> tf.TensorSpec:
    if spec.shape.rank and spec.shape[0] is None:
        return tf.TensorSpec([batch_size, *spec.shape[1:]], spec.dtype, spec.name)
    return spec


@dataclass(frozen=True)
class _Origin:
    """The function and the branch that ops are inlined from.

    Attributes:
        trace: The traced function, for messages.
        state: The state of the random ops that have no state of their own.
        taken: Whether the branch runs, a boolean scalar; None outside conditions.
    """

    trace: Trace
    state: tf.Variable | None
    taken: tf.Tensor | None = None


def _body(body: tf.Graph, given: Mapping[str, Value], origin: _Origin) -> dict[str, Value]:
    """Return the value of each tensor of a function by name, given its arguments."""
    tensors = dict(given)
    for op in needed(body):
        try:
            outputs = _outputs(op, [tensors[t.name] for t in op.inputs], origin)
        except Refusal as refusal:
            raise ExportError(f"{origin.trace.where(op)}: {refusal}") from refusal
        tensors.update(zip((t.name for t in op.outputs), outputs, strict=True))
    return tensors


def _outputs(op: tf.Operation, inputs: list[Value], origin: _Origin) -> list[Value]:
    if op.graph._is_function(op.type):
        raise Refusal(OLD_CALL)
    called = bodies(op)
    if op.type in LOOPS and not called:
        raise unknown(op)
    if op.type in LOOPS:
        return _loop(op, inputs, origin)
    inputs = [plain(value) for value in inputs]
    if op.type in CONDITIONS:
        return _branches(called, [inputs[0]], inputs[1:], origin)
    if op.type in CASES:
        chosen = [tf.equal(inputs[0], i) for i in range(len(called) - 1)]
        return _branches(called, chosen, inputs[1:], origin)
    if called:
        return _results(called[0], inputs, origin)[: len(op.outputs)]  # a later gradient trace may have added outputs
    if op.type in OPTIONALS:
        return optional(op, inputs)
    if inputs and isinstance(inputs[0], TemporaryVariable):
        return list(inputs[0].outputs(op, inputs[1:]))
    if op.type in DRAWS:
        return drawn(op, inputs, origin.state)
    lists = any(isinstance(value, TensorList) for value in inputs)
    if op.type in LISTS and (lists or op.type in MAKES_LISTS):
        element = op.get_attr("element_dtype") if "element_dtype" in op.node_def.attr else tf.float32
        return LISTS[op.type](tf.as_dtype(element), inputs)
    if op.type in ("Identity", "StopGradient") and (lists or isinstance(inputs[0], Kept | Optional)):
        return inputs
    if lists:
        raise Refusal(f"the op {op.type} takes a list of tensors, which is not supported here; use tf.stack")
    if any(isinstance(value, Kept | Optional) for value in inputs):
        raise Refusal(
            f"the op {op.type} takes values that a branch keeps for its gradient; compute the gradient "
            "with a single tape"
        )
    if origin.taken is not None and written(op):
        write_where(origin.taken, op, inputs)
        return []
    return folded(op, inputs) or copied(op, inputs)


def _results(body: tf.Graph, inputs: list[Value], origin: _Origin) -> list[Value]:
    tensors = _body(body, dict(zip((t.name for t in body.inputs), inputs, strict=True)), origin)
    return [tensors[t.name] for t in body.outputs]


def _loop(op: tf.Operation, inputs: list[Value], origin: _Origin) -> list[Value]:
    """Inline a loop, which must not write to a variable."""
    if written(op):
        raise Refusal(f"the op {op.type} writes to a variable in a loop; return the value from the loop, and assign it")
    condition, body = (partial(_results, own, origin=origin) for own in bodies(op))
    return unrolled(inputs, lambda values: condition(inputs=[*values]), lambda values: body(inputs=[*values]))


def _branches(branches: list[tf.Graph], chosen: list[tf.Tensor], inputs: list[Value], origin: _Origin) -> list[Value]:
    """Inline the branches of a condition and select each output; the last branch has no condition in `chosen`."""
    constants = [evaluated(condition) for condition in chosen]
    if all(constant is not None for constant in constants):
        taken = next((i for i, constant in enumerate(constants) if constant), len(constants))
        results = _results(branches[taken], [of_branch(value, taken) for value in inputs], origin)
        return [kept_by(value, taken, len(branches)) for value in results]
    others = tf.logical_not(chosen[0]) if len(chosen) == 1 else tf.logical_not(tf.reduce_any(tf.stack(chosen)))
    conditions = [*chosen, others]
    if origin.taken is not None:
        conditions = [tf.logical_and(origin.taken, own) for own in conditions]
    results = [
        _results(branch, [of_branch(value, i) for value in inputs], replace(origin, taken=conditions[i]))
        for i, branch in enumerate(branches)
    ]
    return [selected(chosen, values) for values in zip(*results, strict=True)]
