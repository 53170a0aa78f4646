"""Gradients of losses and biases against TensorFlow."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.lowering.ops.functions import uncast


@pytest.mark.parametrize("sparse", [True, False])
def test_cross_entropy_of_large_logits_equals_tensorflow(sparse: bool, same: Any) -> None:
    def function(logits: Any, target: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            if sparse:
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.argmax(target, -1), logits)
            else:
                loss = tf.nn.softmax_cross_entropy_with_logits(target, logits)
            total = tf.reduce_sum(loss * weight)
        return {"loss": loss, "dz": tape.gradient(total, logits)}

    logits = np.array([[1000.0, -1000.0, 0.0], [0.1, 0.2, 0.3]], np.float32)
    target = np.array([[0, 1, 0], [0, 0, 1]], np.float32)
    same(function, logits=logits, target=target, weight=np.array([0.5, 2.0], np.float32))


def test_labels_lose_the_casts_of_keras() -> None:
    @tf.function
    def run(y: tf.Tensor) -> tf.Tensor:
        found = uncast(tf.reshape(tf.cast(tf.cast(y, tf.float32), tf.int64), [-1]))
        assert found.op.inputs[0] is y
        return found

    assert run(tf.constant([[1], [2]])).numpy().tolist() == [1, 2]


def test_labels_from_numbers_keep_their_cast() -> None:
    @tf.function
    def run(y: tf.Tensor) -> tf.Tensor:
        labels = tf.cast(y, tf.int64)
        assert uncast(labels) is labels
        return labels

    assert run(tf.constant([1.5])).numpy().tolist() == [1]


def test_bias_gradient_sums_over_positions(both_ways: Any) -> None:
    def function(x: Any, b: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(b)
            total = tf.reduce_sum(tf.nn.bias_add(x, b) * x)
        return {"db": tape.gradient(total, b)}

    _, found = both_ways(function, x=np.arange(12, dtype=np.float32).reshape(2, 3, 2), b=np.zeros(2, np.float32))
    assert found["db"].tolist() == [0 + 2 + 4 + 6 + 8 + 10, 1 + 3 + 5 + 7 + 9 + 11]
