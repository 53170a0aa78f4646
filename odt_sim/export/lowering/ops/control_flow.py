"""Function calls, conditions and loops of a traced graph, for inlining.

All branches of a condition run, and each output is selected afterwards. A write in a branch becomes V = where(taken,
new value, V).

Loops are unrolled if the number of iterations is known or bounded; else they become TFLite's WHILE. A loop with a
bound and a condition on data runs as many iterations as the bound; iterations after its end keep the values. The loop
of its gradient runs as many iterations; its first ones, which belong to those after the end, keep the values, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.ops import tensor_lists
from odt_sim.export.lowering.ops.creation import evaluated
from odt_sim.export.lowering.ops.tensor_lists import TensorList, where
from odt_sim.export.lowering.registry import Refusal, Value

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
CONDITIONS = ("If", "StatelessIf")
CASES = ("Case", "StatelessCase")
LOOPS = ("While", "StatelessWhile")
CALLED = {
    **dict.fromkeys(CALLS, ("f",)),
    **dict.fromkeys(CONDITIONS, ("then_branch", "else_branch")),
    **dict.fromkeys(LOOPS, ("cond", "body")),
}
"""The attributes with the functions that an op calls; a case has a list of functions in `branches`."""
READS = ("ReadVariableOp", "ResourceGather", "VariableShape")  # all other ops on a handle write to it
CHANGES = {
    "AssignVariableOp": lambda old, value: value,
    "AssignAddVariableOp": lambda old, value: old + value,
    "AssignSubVariableOp": lambda old, value: old - value,
}
"""The new value of a variable, for each type of op that writes the whole variable."""


def bodies(op: tf.Operation) -> list[tf.Graph]:
    """Return the graphs that an op calls: a function, a condition's branches, or a loop's condition and body; else none."""
    if op.type not in CALLED and op.type not in CASES:
        return []
    called = op.get_attr("branches") if op.type in CASES else [op.get_attr(name) for name in CALLED[op.type]]
    functions = [op.graph._get_function(function.name) for function in called]
    return [function.graph for function in functions if hasattr(function, "graph")]  # older kinds lack it


def arguments(op: tf.Operation) -> list[tf.Tensor]:
    """Return the inputs that a calling op passes to its bodies."""
    return list(op.inputs)[op.type in CONDITIONS + CASES :]


def written(op: tf.Operation) -> list[tf.Tensor]:
    """Return the handles among an op's inputs that the op, or a function that it calls, writes to."""
    called = bodies(op)
    if not called:
        return [] if op.type in READS else [t for t in op.inputs if t.dtype == tf.resource]
    inside = [{t.name for inner in body.get_operations() for t in written(inner)} for body in called]
    places = {
        i for body, names in zip(called, inside, strict=True) for i, t in enumerate(body.inputs) if t.name in names
    }
    return [t for i, t in enumerate(arguments(op)) if i in places]


def needed(body: tf.Graph) -> list[tf.Operation]:
    """Return, in order, the ops that a body's outputs or writes depend on, without the body's arguments.

    The order is the order of creation, except with loops, because the gradient of a loop adds inputs to the loop later.
    """
    ends = [*(t.op for t in body.outputs), *(op for op in body.get_operations() if written(op))]
    names = depended_on(ends, {})
    operations = [op for op in body.get_operations() if op.name in names and op.type != "Placeholder"]
    return _inputs_first(operations) if any(op.type in LOOPS for op in operations) else operations


def depended_on(ends: Iterable[tf.Operation], writes: Mapping[str, Sequence[tf.Operation]]) -> set[str]:
    """Return the names of ops and of all ops that they depend on.

    Args:
        ends: The ops.
        writes: The ops that write a variable, by the name of its handle's op; a handle depends on them, too.
    """
    pending, names = list(ends), set[str]()
    while pending:
        op = pending.pop()
        if op.name not in names:
            names.add(op.name)
            pending += [*(t.op for t in op.inputs), *writes.get(op.name, ())]
    return names


def _inputs_first(operations: list[tf.Operation]) -> list[tf.Operation]:
    """Return ops sorted so that each follows the ops that compute its inputs."""
    ordered: dict[str, tf.Operation] = {}
    pending = operations[::-1]
    while pending:
        op = pending[-1]
        missing = [t.op for t in op.inputs if t.op.name not in ordered and t.op.type != "Placeholder"]
        if missing and op.name not in ordered:
            pending += missing
        else:
            ordered.setdefault(pending.pop().name, op)
    return list(ordered.values())


@dataclass(frozen=True)
class Optional:
    """A value that one branch of a condition keeps for its gradient, or None."""

    value: Value


@dataclass(frozen=True)
class Kept:
    """The values that a condition's branches keep for their gradients, one for each branch of the gradient.

    Attributes:
        branches: A value per branch; `Kept` for a nested condition, None if the branch keeps nothing.
    """

    branches: tuple[Value, ...]


OPTIONALS = ("OptionalFromValue", "OptionalNone", "OptionalGetValue")


def optional(op: tf.Operation, inputs: list[Value]) -> list[Value]:
    """Keep X or nothing for the gradient, or return the kept value, which exists because both branches run."""
    return inputs if op.type == "OptionalGetValue" else [Optional(*(inputs or [None]))]


def of_branch(value: Value, branch: int) -> Value:
    """Return the value that a condition's branch kept, or any other value unchanged."""
    return value.branches[branch] if isinstance(value, Kept) else value


def kept_by(value: Value, branch: int, branches: int) -> Value:
    """Return the value that the only branch to run keeps for its gradient, or any other value unchanged."""
    if not isinstance(value, Optional):
        return value
    return Kept(tuple(value.value if i == branch else None for i in range(branches)))


def selected(conditions: Sequence[tf.Tensor], values: Sequence[Value]) -> Value:
    """Return the value of the first branch whose condition is true, else of the last; all values if kept for a gradient."""
    if all(isinstance(value, Optional) for value in values):
        return Kept(tuple(value.value for value in values))
    *others, result = values
    for condition, value in zip(reversed(conditions[: len(others)]), reversed(others), strict=True):
        lists = isinstance(value, TensorList)
        result = where(condition, value, result) if lists else tf.where(condition, value, result)
    return result


def write_where(taken: tf.Tensor, op: tf.Operation, inputs: list[Value]) -> None:
    """Emit a write that changes nothing if `taken`, a boolean scalar, is false."""
    if op.type not in CHANGES:
        raise Refusal(f"the op {op.type} writes to rows in a branch of a condition; write to the whole variable there")
    handle, value = inputs
    old = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)
    old = tf.ensure_shape(old, value.shape)
    new = tf.where(taken, CHANGES[op.type](old, value), old)
    tf.raw_ops.AssignVariableOp(resource=handle, value=new)


MOST_ITERATIONS = 1000
"""The maximum number of iterations of an unrolled loop, whose ops are repeated in the file."""

Run = Callable[[Sequence[Value]], list[Value]]
"""A function that inlines the condition or the body of a loop, given the loop's values."""


@dataclass(frozen=True)
class Iterations:
    """The number of iterations of a loop, if it depends on data.

    Attributes:
        count: The number of iterations.
        most: The bound of the number.
    """

    count: tf.Tensor
    most: int


def unrolled(inputs: list[Value], condition: Run, body: Run) -> list[Value]:
    """Return the values after a loop.

    Args:
        inputs: The values before the loop; the first two are the counter and the bound of the iterations.
        condition: The loop's condition.
        body: The loop's body.
    """
    of_forward = next((value for value in inputs if isinstance(value, Iterations)), None)
    if of_forward is not None:
        return _masked_gradient(of_forward, [plain(value) for value in inputs], body)
    values = list(inputs)
    for _ in range(MOST_ITERATIONS):
        (taken,) = condition(values)
        constant = number(taken)
        if constant is None:
            return _open(inputs, condition, body)
        if not constant:
            return values
        values = body(values)
    if any(isinstance(value, TensorList) for value in inputs):
        raise Refusal(f"is a loop of more than {MOST_ITERATIONS} iterations, which is too long to unroll; use fewer")
    return _while(inputs, condition, body)


def plain(value: Value) -> Value:
    """Return a number of iterations as a tensor, and other values unchanged."""
    return value.count if isinstance(value, Iterations) else value


def number(tensor: tf.Tensor) -> Any | None:
    """Return the value of a tensor that depends on constants only."""
    constant = tf.get_static_value(tensor)
    return evaluated(tensor) if constant is None else constant


def _open(inputs: list[Value], condition: Run, body: Run) -> list[Value]:
    """Return the values after a loop whose number of iterations depends on data."""
    most = _bound(inputs)
    if most is not None and most <= MOST_ITERATIONS:
        return _masked(most, inputs, condition, body)
    if any(isinstance(value, TensorList) for value in inputs):
        raise Refusal(
            "is a loop with a gradient whose number of iterations depends on data; give it maximum_iterations, or a "
            "fixed number of iterations"
        )
    return _while(inputs, condition, body)


def _bound(inputs: list[Value]) -> int | None:
    """Return the maximum number of iterations of a loop: its bound minus its counter; None if open or negative."""
    counted = [value for value in inputs[:2] if isinstance(value, tf.Tensor) and value.dtype == tf.int32]
    numbers = [int(n) for t in counted if (n := tf.get_static_value(t)) is not None and not np.ndim(n)]
    return numbers[1] - numbers[0] if len(numbers) == 2 and numbers[1] >= 0 else None


def _masked(most: int, inputs: list[Value], condition: Run, body: Run) -> list[Value]:
    values, running = list(inputs), None
    for _ in range(most):
        (taken,) = condition(values)
        running = taken if running is None else tf.logical_and(running, taken)
        values = [_kept(running, new, old) for new, old in zip(body(values), values, strict=True)]
    return [Iterations(values[0], most), *values[1:]]


def _masked_gradient(iterations: Iterations, inputs: list[Value], body: Run) -> list[Value]:
    values = list(inputs)
    for left in reversed(range(iterations.most)):
        running = iterations.count > left
        values = [_kept(running, new, old) for new, old in zip(body(values), values, strict=True)]
    return values


def _kept(running: tf.Tensor, new: Value, old: Value) -> Value:
    """Return a value after an iteration; lists grow and shrink in every iteration."""
    if new is old:
        return new
    if isinstance(new, TensorList):
        return new if len(new.items) != len(old.items) else tensor_lists.where(running, new, old)
    return tf.where(running, new, old)


def _while(inputs: list[Value], condition: Run, body: Run) -> list[Value]:
    """Emit TensorFlow's loop, which becomes WHILE; values that are not tensors stay outside."""
    carried = [i for i, value in enumerate(inputs) if isinstance(value, tf.Tensor) and value.dtype != tf.resource]

    def complete(values: Sequence[tf.Tensor]) -> list[Value]:
        given = dict(zip(carried, values, strict=True))
        return [given.get(i, value) for i, value in enumerate(inputs)]

    results = tf.while_loop(
        lambda *values: condition(complete(values))[0],
        lambda *values: [body(complete(values))[i] for i in carried],
        [inputs[i] for i in carried],
    )
    return complete(results)
