"""Random numbers that start from a variable, so that runs are reproducible; LiteRT's start from the clock.

As in Keras' random layers, the variable contains a seed and a count of draws.
"""

import tensorflow as tf

from odt_sim.export.importing.registry import Operator, Value, imports
from odt_sim.export.lowering.registry import Refusal
from odt_sim.export.user_parameters import GENERATOR
from odt_sim.model.graph import Graph

UNIFORM = ("RANDOM_UNIFORM", "FlexRandomUniform")

States = dict[tuple[int, int], tf.Variable]
"""The state of each random op, by the indices of its subgraph and its output."""


def random_states(graph: Graph) -> States:
    """Return a state for each random op, with seeds 0, 1, 2, ..."""
    places = [
        (i, op.outputs[0]) for i, subgraph in enumerate(graph.subgraphs) for op in subgraph.ops if op.kind in UNIFORM
    ]
    return {
        place: tf.Variable([seed, 0], dtype=tf.int64, trainable=False, name=f"random_{seed}/{GENERATOR}")
        for seed, place in enumerate(places)
    }


@imports(*UNIFORM)
def random_uniform(operator: Operator) -> list[Value]:
    """Draw numbers in [0, 1)."""
    if operator.dtypes != [tf.float32] or operator.state is None:
        raise Refusal("draws numbers other than float32; draw float32")
    state = tf.raw_ops.ReadVariableOp(resource=operator.state.handle, dtype=tf.int64)
    tf.raw_ops.AssignVariableOp(resource=operator.state.handle, value=state + tf.constant([0, 1], tf.int64))
    return [tf.random.stateless_uniform(operator.inputs[0], tf.cast(state, tf.int32))]
