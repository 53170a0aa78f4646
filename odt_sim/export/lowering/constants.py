"""Constants such as shapes and axes, each once in a graph.

They would be nearly half of a graph's ops, and TensorFlow takes as long to add one as any other op.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import tensorflow as tf

_OF_GRAPHS = WeakKeyDictionary[tf.Graph, dict[tuple[int, ...], tf.Tensor]]()


def integers(values: Sequence[int]) -> tf.Tensor:
    """Return an int32 vector in the current graph."""
    known, key = _OF_GRAPHS.setdefault(tf.compat.v1.get_default_graph(), {}), tuple(values)
    if key not in known:
        known[key] = tf.constant(key, tf.int32, [len(key)])
    return known[key]
