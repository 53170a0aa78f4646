"""Constants, such as shapes, axes and those of a trace, each added to a graph only once.

Otherwise, they would be nearly half of a graph's ops, and TensorFlow adds a constant no faster than any other op.
"""

from collections.abc import Callable, Hashable, Sequence

import tensorflow as tf

from odt_sim.export.lowering.creation import created, type_attribute

_ATTRIBUTE = "_odt_sim_constants"


def shared(key: Hashable, make: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Return the tensor of a key in the current graph, created on first use; equal keys mean equal tensors."""
    graph = tf.compat.v1.get_default_graph()
    # Stored in the graph, to be freed with it: a dictionary by graph would keep all graphs, because tensors refer to them.
    if not hasattr(graph, _ATTRIBUTE):
        setattr(graph, _ATTRIBUTE, {})
    known = getattr(graph, _ATTRIBUTE)
    if key not in known:
        with graph.control_dependencies(None):
            known[key] = make()
    tensor: tf.Tensor = known[key]
    return tensor


def integers(values: Sequence[int]) -> tf.Tensor:
    """Return an int32 vector in the current graph."""
    key = tuple(values)
    return shared(key, lambda: tf.constant(key, tf.int32, [len(key)]))


def reshaped(x: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
    """Reshape a tensor to sizes, of which one may be -1; merge this with an earlier reshape of the tensor."""
    if x.shape.rank == len(sizes) and all(size in (-1, own) for own, size in zip(x.shape, sizes, strict=True)):
        return x
    if x.op.type == "Reshape":
        source = x.op.inputs[0]
        if source.shape.is_fully_defined() or not x.shape.is_fully_defined():  # else only `x` has all sizes
            return reshaped(source, sizes)
    attributes = {"T": type_attribute(x.dtype), "Tshape": type_attribute(tf.int32)}
    return created("Reshape", [x, integers(sizes)], [x.dtype], attributes)[0]
