"""Gradients of activations, losses and arithmetic against TensorFlow's own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": tf.nn.relu,
    "relu6": tf.nn.relu6,
    "leaky_relu": tf.nn.leaky_relu,
    "elu": tf.nn.elu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "softmax": tf.nn.softmax,
    "selu": lambda x: tf.nn.selu(x - 0.1),  # not at its kink, where TensorFlow's own forms of e^x - 1 differ
    "softplus": tf.nn.softplus,
    "softsign": tf.nn.softsign,
    "erf": tf.math.erf,
    "erfc": tf.math.erfc,
    "expm1": lambda x: tf.math.expm1(0.5 * x),
    "log1p": lambda x: tf.math.log1p(x * x),
    "floor division": lambda x: x * tf.cast(tf.cast(x, tf.int64) // 2, tf.float32),
    "rsqrt": lambda x: tf.math.rsqrt(x * x + 0.5),
    "sqrt": lambda x: tf.sqrt(x * x + 0.5),
    "reciprocal": lambda x: tf.math.reciprocal(x * x + 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_is_tensorflows(name: str, same: Any) -> None:
    def function(x: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = FUNCTIONS[name](x)
            total = tf.reduce_sum(y * weight)
        return {"y": y, "dx": tape.gradient(total, x)}

    x = np.array([[-7.0, -1.0, -1e-30, 0.0, 1e-30], [0.5, 1.0, 5.9, 6.0, 7.0]], np.float32)
    same(function, x=x, weight=np.linspace(-1, 2, 10, dtype=np.float32).reshape(2, 5))


@pytest.mark.parametrize("sparse", [True, False])
def test_cross_entropy_of_large_logits_is_tensorflows(sparse: bool, same: Any) -> None:
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


def test_bias_gradient_is_the_sum_over_all_places(both_ways: Any) -> None:
    def function(x: Any, b: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(b)
            total = tf.reduce_sum(tf.nn.bias_add(x, b) * x)
        return {"db": tape.gradient(total, b)}

    _, found = both_ways(function, x=np.arange(12, dtype=np.float32).reshape(2, 3, 2), b=np.zeros(2, np.float32))
    assert found["db"].tolist() == [0 + 2 + 4 + 6 + 8 + 10, 1 + 3 + 5 + 7 + 9 + 11]
