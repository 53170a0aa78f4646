"""Functions that a traced graph calls, and the two branches of a condition: both are inlined.

Of a condition both branches run, and each value is selected afterwards. A branch's writes must not happen where the
branch is not taken: they become V = where(taken, new value, V).
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
    """Returns the graphs that an op calls: one, or those of a condition's two branches; none for any other op."""
    names = {**dict.fromkeys(CALLS, ("f",)), **dict.fromkeys(CONDITIONS, ("then_branch", "else_branch"))}
    return [op.graph._get_function(op.get_attr(name).name).graph for name in names.get(op.type, ())]


def arguments(op: tf.Operation) -> list[tf.Tensor]:
    """Returns what a calling op gives to its bodies."""
    return list(op.inputs)[op.type in CONDITIONS :]


def written(op: tf.Operation) -> list[tf.Tensor]:
    """Returns the handles among an op's inputs that it, or a function that it calls, writes to."""
    called = bodies(op)
    if not called:
        return [] if op.type in READS else [t for t in op.inputs if t.dtype == tf.resource]
    inside = [{t.name for inner in body.get_operations() for t in written(inner)} for body in called]
    places = {
        i for body, names in zip(called, inside, strict=True) for i, t in enumerate(body.inputs) if t.name in names
    }
    return [t for i, t in enumerate(arguments(op)) if i in places]


def needed(body: tf.Graph) -> list[tf.Operation]:
    """Returns in order the ops of a body that its outputs or its writes depend on, its arguments left out."""
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
    """What one branch of a condition keeps for its gradient: a value, or None."""

    value: Value


@dataclass(frozen=True)
class Kept:
    """What the two branches of a condition keep for their gradients; each branch of the gradient takes its own.

    Attributes:
        branches: For each branch a value; `Kept` too, where a condition stands in a branch. None where it keeps none.
    """

    branches: tuple[Value, Value]


OPTIONALS = ("OptionalFromValue", "OptionalNone", "OptionalGetValue")


def optional(op: tf.Operation, inputs: list[Value]) -> list[Value]:
    """Keeps X, or nothing, for the gradient, or returns what was kept: both branches run, so that it is there."""
    return inputs if op.type == "OptionalGetValue" else [Optional(*(inputs or [None]))]


def of_branch(value: Value, branch: int) -> Value:
    """Returns a value as a condition's branch takes it."""
    return value.branches[branch] if isinstance(value, Kept) else value


def selected(condition: tf.Tensor, one: Value, other: Value) -> Value:
    """Returns the value of the branch that is taken; both of what they keep."""
    if isinstance(one, Optional) and isinstance(other, Optional):
        return Kept((one.value, other.value))
    return tf.where(condition, one, other)


def write_where(taken: tf.Tensor, op: tf.Operation, inputs: list[Value]) -> None:
    """Emits a write that changes nothing where `taken`, a boolean scalar, is false.

    Raises:
        Refusal: The op writes to some rows only.
    """
    if op.type not in CHANGES:
        raise Refusal(f"the op {op.type} stands in a branch of a condition; write to the whole variable there")
    handle, value = inputs
    old = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)
    old = tf.ensure_shape(old, value.shape)
    new = tf.where(taken, CHANGES[op.type](old, value), old)
    tf.raw_ops.AssignVariableOp(resource=handle, value=new)
