"""Function calls and conditions of a graph, against TensorFlow."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf


@pytest.mark.parametrize("x", [-1.0, 1.0, 3.0])
def test_condition_returns_the_taken_branch(x: float, same: Any) -> None:
    def function(x: Any) -> dict[str, Any]:
        inner = lambda: tf.cond(x > 2.0, lambda: x * x, lambda: tf.exp(x))  # noqa: E731
        return {"y": tf.cond(x > 0.0, inner, lambda: 3.0 * x)}

    same(function, x=np.float32(x).reshape(()))


def test_called_function_is_inlined(same: Any) -> None:
    @tf.function(autograph=False)
    def scaled(x: Any, factor: Any) -> Any:
        return tf.nn.relu(x * factor)

    def function(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(scaled(x, 2.0) * scaled(x, 3.0))
        return {"total": total, "dx": tape.gradient(total, x)}

    same(function, x=np.array([-1.0, 0.5, 2.0], np.float32))


def test_previously_differentiated_function_is_inlined(same: Any) -> None:
    """TensorFlow has then added outputs to the function's graph."""

    @tf.function(autograph=False)
    def shared(x: Any) -> Any:
        return tf.nn.relu(x - tf.reduce_mean(x))

    def function(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(shared(x) * x)
        return {"total": total, "dx": tape.gradient(total, x)}

    x = np.array([-1.0, 0.5, 2.0], np.float32)
    same(function, x=x)
    same(lambda x: {"y": shared(x)}, x=x)


@pytest.mark.parametrize("x", [-1.0, 1.0, 3.0])
def test_condition_differentiates_the_taken_branch(x: float, same: Any) -> None:
    def function(x: Any, v: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, v])
            inner = lambda: tf.cond(x > 2.0, lambda: x * x * v, lambda: tf.exp(v))  # noqa: E731
            total = tf.reduce_sum(tf.cond(x > 0.0, inner, lambda: 3.0 * x * tf.tanh(v)))
        dx, dv = tape.gradient(total, [x, v])
        return {"dx": dx, "dv": dv}

    same(function, x=np.float32(x).reshape(()), v=np.array([0.5, -1.0, 2.0], np.float32))
