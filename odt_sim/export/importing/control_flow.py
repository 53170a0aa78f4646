"""Calls, conditions and loops. Loops are unrolled, so their number of iterations must not depend on data."""

from functools import partial

import tensorflow as tf

from odt_sim.export.importing.registry import Operator, Value, imports
from odt_sim.export.lowering.loops import MOST_ITERATIONS
from odt_sim.export.lowering.registry import Refusal


@imports("CALL_ONCE")
def call_once(operator: Operator) -> list[Value]:
    """Ignore an initializer, because variables already have their initial values."""
    return []


@imports("CALL")
def call(operator: Operator) -> list[Value]:
    """Import the ops of the called subgraph."""
    return operator.run(operator.options.subgraph, operator.inputs)


@imports("IF")
def condition(operator: Operator) -> list[Value]:
    """Import a condition with both branches, or only the chosen branch of a constant condition."""
    taken, *inputs = operator.inputs
    branches = [operator.options.thenSubgraphIndex, operator.options.elseSubgraphIndex]
    then, other = (partial(operator.run, index, inputs) for index in branches)
    constant = tf.get_static_value(taken)
    if constant is not None:
        return then() if constant else other()
    results = tf.cond(tf.reshape(taken, []), then, other)
    return list(results) if isinstance(results, list | tuple) else [results]


@imports("WHILE")
def loop(operator: Operator) -> list[Value]:
    """Import the ops of each iteration."""
    values = list(operator.inputs)
    for _ in range(MOST_ITERATIONS):
        (taken,) = operator.run(operator.options.condSubgraphIndex, values)
        constant = tf.get_static_value(taken)
        if constant is None:
            raise Refusal("is a loop whose number of iterations depends on data, so it cannot be unrolled")
        if not constant:
            return values
        values = operator.run(operator.options.bodySubgraphIndex, values)
    raise Refusal(f"is a loop of more than {MOST_ITERATIONS} iterations, which is too long to unroll")
