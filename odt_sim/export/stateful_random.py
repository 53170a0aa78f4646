"""Give TensorFlow's own random ops, such as `tf.random.normal`, a state in a variable, as random layers of Keras have.

All such ops of a function share one state: each draws from it and counts. Otherwise LiteRT would start them from the clock,
and a run could not be repeated.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.calls import bodies
from odt_sim.export.lowering.registry import Refusal
from odt_sim.export.user_parameters import GENERATOR, is_generator

Draw = Callable[..., tf.Tensor]


def _shuffled(seed: tf.Tensor, kind: tf.DType, x: tf.Tensor) -> tf.Tensor:
    order = tf.argsort(tf.random.stateless_uniform([x.shape[0]], seed))
    return tf.ensure_shape(tf.gather(x, order), x.shape)


def _gamma(seed: tf.Tensor, kind: tf.DType, shape: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_gamma(tf.concat([shape, alpha.shape], 0), seed, alpha)


DRAWS: Mapping[str, Draw] = {
    "RandomStandardNormal": lambda seed, kind, shape: tf.random.stateless_normal(shape, seed, dtype=kind),
    "TruncatedNormal": lambda seed, kind, shape: tf.random.stateless_truncated_normal(shape, seed, dtype=kind),
    "RandomUniform": lambda seed, kind, shape: tf.random.stateless_uniform(shape, seed, dtype=kind),
    "RandomUniformInt": lambda seed, kind, shape, low, high: tf.random.stateless_uniform(shape, seed, low, high, kind),
    "Multinomial": lambda seed, kind, logits, count: tf.random.stateless_categorical(logits, count, seed, kind),
    "RandomShuffle": _shuffled,
    "RandomGamma": _gamma,
}
"""What draws the same distribution from a seed, per op with a state of its own."""


def new_state() -> tf.Variable:
    """Return a seed and a count of draws, `[2]` int64."""
    return tf.Variable([0, 0], dtype=tf.int64, trainable=False, name=f"random/{GENERATOR}")


def draws(graph: tf.Graph) -> bool:
    """Return whether a graph, or a function that it calls, has random ops without a seed of their own."""
    return any(op.type in DRAWS or any(map(draws, bodies(op))) for op in graph.get_operations())


def drawn(op: tf.Operation, inputs: list[tf.Tensor], state: tf.Variable) -> list[tf.Tensor]:
    """Draw the numbers of an op from a state, and count the draw."""
    value = tf.raw_ops.ReadVariableOp(resource=state.handle, dtype=tf.int64)
    tf.raw_ops.AssignVariableOp(resource=state.handle, value=value + tf.constant([0, 1], tf.int64))
    kind = op.outputs[0].dtype
    if kind not in (tf.float32, tf.int32, tf.int64):
        raise Refusal(f"the op {op.type} draws numbers of {kind.name}; draw float32 or int32")
    return [DRAWS[op.type](tf.cast(value, tf.int32), kind, *inputs)]


def untracked_states(traces: Mapping[str, Trace], known: set[int]) -> list[tf.Variable]:
    """Return the states of random ops that traces read and that no layer owns, as of `keras.random` without a seed.

    Args:
        traces: The traced functions.
        known: The handle ids of the variables that have an owner.
    """
    variables = [v for trace in traces.values() for v in (*trace.states, *trace.concrete.graph.variables)]
    found = {id(v.handle): v for v in variables if is_generator(v)}
    return [v for key, v in found.items() if key not in known]
