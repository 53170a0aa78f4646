"""Function calls and conditions of a traced graph, as the inlining needs them.

Both branches of a condition run, and each output is selected afterwards. A write in a branch becomes
V = where(taken, new value, V).
"""

from dataclasses import dataclass

import tensorflow as tf

from odt_sim.export.lowering.registry import Refusal, Value

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
CONDITIONS = ("If", "StatelessIf")
LOOPS = ("While", "StatelessWhile")
READS = ("ReadVariableOp", "ResourceGather", "VariableShape")  # all other ops on a handle write to it
CHANGES = {
    "AssignVariableOp": lambda old, value: value,
    "AssignAddVariableOp": lambda old, value: old + value,
    "AssignSubVariableOp": lambda old, value: old - value,
}
"""The new value of a variable, per op that writes to all of it."""


def bodies(op: tf.Operation) -> list[tf.Graph]:
    """Return the graphs that an op calls: one, or the two branches of a condition; none for other ops."""
    names = {**dict.fromkeys(CALLS, ("f",)), **dict.fromkeys(CONDITIONS, ("then_branch", "else_branch"))}
    return [op.graph._get_function(op.get_attr(name).name).graph for name in names.get(op.type, ())]


def arguments(op: tf.Operation) -> list[tf.Tensor]:
    """Return the inputs that a calling op passes to its bodies."""
    return list(op.inputs)[op.type in CONDITIONS :]


def written(op: tf.Operation) -> list[tf.Tensor]:
    """Return the handles among an op's inputs that it, or a function that it calls, writes to."""
    called = bodies(op)
    if not called:
        return [] if op.type in READS else [t for t in op.inputs if t.dtype == tf.resource]
    inside = [{t.name for inner in body.get_operations() for t in written(inner)} for body in called]
    places = {
        i for body, names in zip(called, inside, strict=True) for i, t in enumerate(body.inputs) if t.name in names
    }
    return [t for i, t in enumerate(arguments(op)) if i in places]


def needed(body: tf.Graph) -> list[tf.Operation]:
    """Return in order the ops that a body's outputs or writes depend on, without its arguments."""
    pending = [t.op for t in body.outputs] + [op for op in body.get_operations() if written(op)]
    found: set[str] = set()
    while pending:
        op = pending.pop()
        if op.name not in found:
            found.add(op.name)
            pending += [t.op for t in op.inputs]
    return [op for op in body.get_operations() if op.name in found and op.type != "Placeholder"]


@dataclass(frozen=True)
class Optional:
    """A value that one branch of a condition keeps for its gradient, or None."""

    value: Value


@dataclass(frozen=True)
class Kept:
    """What both branches of a condition keep for their gradients; each branch of the gradient takes its own.

    Attributes:
        branches: A value per branch; `Kept` for a nested condition, None if the branch keeps nothing.
    """

    branches: tuple[Value, Value]


OPTIONALS = ("OptionalFromValue", "OptionalNone", "OptionalGetValue")


def optional(op: tf.Operation, inputs: list[Value]) -> list[Value]:
    """Keep X, or nothing, for the gradient, or return the kept value: both branches run, so it exists."""
    return inputs if op.type == "OptionalGetValue" else [Optional(*(inputs or [None]))]


def of_branch(value: Value, branch: int) -> Value:
    """Return a value as a condition's branch takes it."""
    return value.branches[branch] if isinstance(value, Kept) else value


def selected(condition: tf.Tensor, one: Value, other: Value) -> Value:
    """Return the value of the taken branch; both values if they are kept for a gradient."""
    if isinstance(one, Optional) and isinstance(other, Optional):
        return Kept((one.value, other.value))
    return tf.where(condition, one, other)


def write_where(taken: tf.Tensor, op: tf.Operation, inputs: list[Value]) -> None:
    """Emit a write that changes nothing if `taken`, a boolean scalar, is false."""
    if op.type not in CHANGES:
        raise Refusal(f"the op {op.type} writes to rows in a branch of a condition; write to the whole variable there")
    handle, value = inputs
    old = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)
    old = tf.ensure_shape(old, value.shape)
    new = tf.where(taken, CHANGES[op.type](old, value), old)
    tf.raw_ops.AssignVariableOp(resource=handle, value=new)
