"""Loops: unrolled if the number of iterations is known or bounded, else TFLite's WHILE.

A loop with a bound and a condition on data runs as many iterations as the bound; iterations after its end keep the values.
The loop of its gradient runs as many iterations; its first ones, which belong to those after the end, keep the values, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering import tensor_lists
from odt_sim.export.lowering.constant_folding import evaluated
from odt_sim.export.lowering.registry import Refusal
from odt_sim.export.lowering.tensor_lists import TensorList

MOST_ITERATIONS = 1000
"""The maximum number of iterations of an unrolled loop, whose ops are repeated in the file."""

Value = Any
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
