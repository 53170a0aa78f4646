"""Each constant is in a graph only once, and never in another graph."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.lowering.ops.creation import computed, copied, integers


def test_equal_constants_are_one_op_of_a_graph() -> None:
    with tf.Graph().as_default() as graph:
        assert integers([1, -1]) is integers((1, -1))
        assert integers([1]).graph is graph
        integers([])
        assert [op.type for op in graph.get_operations()] == ["Const"] * 3


def test_graphs_have_constants_of_their_own() -> None:
    made = []
    for _ in range(2):
        with tf.Graph().as_default() as graph:
            made.append(integers([2, 3]))
            assert made[-1].graph is graph
    assert made[0] is not made[1]


def test_values_are_int32_vectors() -> None:
    for values in ([], [4], [0, -1, 7]):
        constant = integers(values)
        assert constant.dtype == tf.int32
        np.testing.assert_array_equal(constant, np.array(values, np.int32))


@pytest.mark.slow
def test_a_graph_ends_with_its_constants() -> None:
    with tf.Graph().as_default() as graph:
        integers([1, 2])
    ended = weakref.ref(graph)
    del graph
    gc.collect()
    assert ended() is None


def test_equal_traced_constants_are_copied_once() -> None:
    values = [0.5, 0.5, -0.5, np.array([0.5]), np.int32(1), np.int64(1)]
    with tf.Graph().as_default():
        traced = [tf.constant(value) for value in values]
    with tf.Graph().as_default() as graph:
        once = [copied(tensor.op, []) for tensor in traced]
        assert once[0][0] is once[1][0]
        assert len(graph.get_operations()) == len(values) - 1
    with tf.compat.v1.Session(graph=graph) as session:
        for [tensor], value in zip(once, values, strict=True):
            found = session.run(tensor)
            assert (found.shape, found.dtype) == (np.shape(value), tensor.dtype.as_numpy_dtype)
            np.testing.assert_array_equal(found, value)


def test_remembered_results_are_those_of_equal_ops_and_values_only() -> None:
    with tf.Graph().as_default():
        pair = [tf.constant([2, 3]), tf.constant([4, 5])]
        ops = [tf.stack(pair, axis=axis).op for axis in (0, 0, 1)]
    values = [np.array([2, 3], np.int32), np.array([4, 5], np.int32)]
    computed(ops[0], values)[0][:] = 0  # a caller's own copy
    assert computed(ops[1], values)[0].tolist() == [[2, 3], [4, 5]]
    assert computed(ops[2], values)[0].tolist() == [[2, 4], [3, 5]]
    assert computed(ops[1], values[::-1])[0].tolist() == [[4, 5], [2, 3]]


def test_lengths_of_texts_are_not_those_of_earlier_texts() -> None:
    """A new string may get the address of a deleted one."""
    with tf.Graph().as_default():
        op = tf.strings.length(tf.constant([b"text"])).op
    lengths = [computed(op, [np.array([b"x" * i], object)])[0].item() for i in range(50)]
    assert lengths == [*range(50)]


def test_equal_random_ops_are_not_remembered() -> None:
    shape = np.array([64], np.int32)
    with tf.Graph().as_default() as graph:
        tf.random.uniform(tf.constant(shape))
    [op] = (op for op in graph.get_operations() if op.type == "RandomUniform")
    assert computed(op, [shape])[0].tolist() != computed(op, [shape])[0].tolist()
