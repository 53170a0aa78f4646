"""Writes out what a traced graph calls: functions in place of their calls, and conditions as selections.

What an author saved is calls within calls. Written out, each op stands by itself: what nothing asks for can be left out, and
with a fixed batch TensorFlow infers the shapes anew.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.calls import (
    CONDITIONS,
    OPTIONALS,
    bodies,
    needed,
    of_branch,
    optional,
    selected,
    write_where,
    written,
)
from odt_sim.export.lowering.folding import folded
from odt_sim.export.scratch import Scratch
from odt_sim.export.tracing import named

Value = Any
"""A `tf.Tensor`, or a `Scratch` variable."""


def inlined(trace: Trace, batch_size: int | None = None, scratch: Mapping[int, tf.Variable] | None = None) -> Trace:
    """Returns the same function as a graph without calls and conditions; loops stay.

    Args:
        trace: The traced function.
        batch_size: The size of every argument's first axis that is not fixed; None leaves it open.
        scratch: By the ids of their handles, variables that become tensors, zero at first; see `scratch.scratch_variables`.
    """
    graph, local = trace.concrete.graph, scratch or {}
    if batch_size is None and not local and not any(bodies(op) for op in graph.get_operations()):
        return trace
    arguments = {place: _fixed(spec, batch_size) for place, spec in trace.arguments.items()}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        given = {place: values[spec.name] for place, spec in arguments.items()}
        given |= {placeholder.op.name: outer for outer, placeholder in graph.captures}
        for place, key in trace.variables.items():
            if key in local:
                given[place] = Scratch(tf.zeros(local[key].shape, local[key].dtype))
        tensors = _body(graph, {t.name: given[t.op.name] for t in graph.inputs}, None)
        return {name: tf.identity(tensors[t.name]) for name, t in trace.concrete.structured_outputs.items()}

    return Trace(named(function, list(arguments.values())), trace.layers)


def _fixed(spec: tf.TensorSpec, batch_size: int | None) -> tf.TensorSpec:
    if spec.shape.rank and spec.shape[0] is None:
        return tf.TensorSpec([batch_size, *spec.shape[1:]], spec.dtype, spec.name)
    return spec


def _body(body: tf.Graph, given: Mapping[str, Value], taken: tf.Tensor | None) -> dict[str, Value]:
    """Writes out a function.

    Args:
        body: Its graph.
        given: Its arguments, by name.
        taken: Whether it runs at all, a boolean scalar; None in no branch of a condition.

    Returns:
        What each of its tensors became, by name.
    """
    tensors = dict(given)
    for op in needed(body):
        outputs = _outputs(op, [tensors[t.name] for t in op.inputs], taken)
        tensors.update(zip((t.name for t in op.outputs), outputs, strict=True))
    return tensors


def _outputs(op: tf.Operation, inputs: list[Value], taken: tf.Tensor | None) -> list[tf.Tensor]:
    called = bodies(op)
    if op.type in CONDITIONS:
        return _branches(called, inputs[0], inputs[1:], taken)
    if called:
        return _results(called[0], inputs, taken)[: len(op.outputs)]  # a gradient traced since may have added some
    if op.type in OPTIONALS:
        return optional(op, inputs, {})
    if inputs and isinstance(inputs[0], Scratch):
        return list(inputs[0].outputs(op, inputs[1:]))
    if taken is not None and written(op):
        write_where(taken, op, inputs)
        return []
    return folded(op, inputs) or _copied(op, inputs)


def _results(body: tf.Graph, inputs: list[Value], taken: tf.Tensor | None) -> list[tf.Tensor]:
    tensors = _body(body, dict(zip((t.name for t in body.inputs), inputs, strict=True)), taken)
    return [tensors[t.name] for t in body.outputs]


def _branches(
    branches: list[tf.Graph], condition: tf.Tensor, inputs: list[Value], taken: tf.Tensor | None
) -> list[tf.Tensor]:
    """Writes out both branches of a condition and selects each output."""
    conditions = [condition, tf.logical_not(condition)]
    if taken is not None:
        conditions = [tf.logical_and(taken, own) for own in conditions]
    one, other = (
        _results(branch, [of_branch(value, i) for value in inputs], conditions[i]) for i, branch in enumerate(branches)
    )
    return [selected(condition, a, b) for a, b in zip(one, other, strict=True)]


def _copied(op: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """Adds an op under its own name, which tells a message where it comes from."""
    attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
    graph = tf.compat.v1.get_default_graph()
    types = [t.dtype for t in op.outputs]
    return list(graph.create_op(op.type, inputs, types, attrs=attributes, op_def=op.op_def, name=op.name).outputs)
