"""Constants such as shapes and axes, each once in a graph.

They would be nearly half of a graph's ops, and TensorFlow takes as long to add one as any other op.
"""

from collections.abc import Sequence

import tensorflow as tf

_ATTRIBUTE = "_odt_sim_integers"


def integers(values: Sequence[int]) -> tf.Tensor:
    """Return an int32 vector in the current graph."""
    graph = tf.compat.v1.get_default_graph()
    # In the graph itself, with which they end: a dictionary of graphs would keep all, as tensors refer to their graph.
    if not hasattr(graph, _ATTRIBUTE):
        setattr(graph, _ATTRIBUTE, {})
    known, key = getattr(graph, _ATTRIBUTE), tuple(values)
    if key not in known:
        known[key] = tf.constant(key, tf.int32, [len(key)])
    constant: tf.Tensor = known[key]
    return constant


def reshaped(x: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
    """Return a tensor with other sizes, of which one may be -1."""
    return tf.reshape(x, integers(sizes))
