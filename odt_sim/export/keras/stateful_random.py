"""Give TensorFlow's random ops, such as `tf.random.normal`, a state in a variable, as Keras' random layers have.

All such ops of a function share one state, which counts their draws. Otherwise, LiteRT would seed them from the clock, and
runs would not be reproducible.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.control_flow import bodies
from odt_sim.export.lowering.registry import Refusal
from odt_sim.export.trace.user_parameters import GENERATOR, is_generator

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
"""For each stateful random op, a function that draws from the same distribution by a seed."""


def new_state() -> tf.Variable:
    """Return a variable with a seed and a count of draws, `[2]` int64."""
    return tf.Variable([0, 0], dtype=tf.int64, trainable=False, name=f"random/{GENERATOR}")


def draws(graph: tf.Graph) -> bool:
    """Return whether a graph, or a function that it calls, has stateful random ops."""
    return any(op.type in DRAWS or any(map(draws, bodies(op))) for op in graph.get_operations())


def drawn(op: tf.Operation, inputs: list[tf.Tensor], state: tf.Variable) -> list[tf.Tensor]:
    """Draw the numbers of an op with the seed and count of a state, and count the draw."""
    value = tf.raw_ops.ReadVariableOp(resource=state.handle, dtype=tf.int64)
    tf.raw_ops.AssignVariableOp(resource=state.handle, value=value + tf.constant([0, 1], tf.int64))
    kind = op.outputs[0].dtype
    if kind not in (tf.float32, tf.int32, tf.int64):
        raise Refusal(f"the op {op.type} draws numbers of {kind.name}; draw float32 or int32")
    return [DRAWS[op.type](tf.cast(value, tf.int32), kind, *inputs)]


def untracked_states(traces: Mapping[str, Trace], known: set[int]) -> list[tf.Variable]:
    """Return the states of random ops that traces read but no layer owns, such as of `keras.random` without a seed.

    Args:
        traces: The traced functions.
        known: The handle ids of the variables that have an owner.
    """
    variables = [v for trace in traces.values() for v in (*trace.states, *trace.concrete.graph.variables)]
    found = {id(v.handle): v for v in variables if is_generator(v)}
    return [v for key, v in found.items() if key not in known]
