"""Values computed only after a gradient are bit-for-bit equal to those of the forward pass."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.lowering.layout.late import SMALL, late, recomputed, zero_after

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(SMALL // 50, 3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("first", [0.0, -3.0, np.inf, -np.inf])
def test_zero_is_exact_for_any_gradient(first: float) -> None:
    gradient = tf.constant([first, *range(SMALL)], tf.float32)
    zero = zero_after(gradient)
    assert isinstance(zero, tf.Tensor)
    np.testing.assert_array_equal(zero, [0.0])


@pytest.mark.parametrize("activation", [tf.nn.relu, tf.nn.relu6])
def test_normalized_relu_is_computed_again(activation: Any) -> None:
    @tf.function
    def run(x: tf.Tensor) -> list[tf.Tensor]:
        y = tf.pad(activation(x * tf.range(1.0, 6.0) + 0.5), [[0, 0], [0, 1], [0, 1], [0, 0]])
        again = recomputed(y, x, {})
        assert again is not y
        return [y, again]

    own, again = run(tf.constant(X))
    np.testing.assert_array_equal(own, again)


def test_nothing_waits_for_a_small_gradient() -> None:
    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        gradient, y = tf.ones([SMALL]), tf.nn.relu(x * tf.range(1.0, 6.0) + 0.5)
        assert zero_after(gradient) == 0.0
        assert late(y, gradient, {}) is recomputed(y, gradient, {}) is y
        return y

    run(tf.constant(X))


def test_other_value_is_not_computed_again() -> None:
    @tf.function
    def run(x: tf.Tensor) -> list[tf.Tensor]:
        y = tf.nn.relu(x + x)
        assert recomputed(y, x, {}) is y
        return [y, late(y, x, {})]

    own, again = run(tf.constant(X))
    np.testing.assert_array_equal(own, again)
