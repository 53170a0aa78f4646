"""Gradients of max and average pooling against TensorFlow, with ties."""

from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st


def pooled(kind: str, window: tuple[int, int], strides: tuple[int, int], padding: str) -> Any:
    pool = {"MAX": tf.nn.max_pool2d, "AVG": tf.nn.avg_pool2d}[kind]

    def function(x: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = pool(x, window, strides, padding)
            total = tf.reduce_sum(y * weight[:, : y.shape[1], : y.shape[2]])
        return {"y": y, "dx": tape.gradient(total, x)}

    return function


sizes = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=10, deadline=None)
@given(
    kind=st.sampled_from(["MAX", "AVG"]),
    window=sizes,
    strides=sizes,
    padding=st.sampled_from(["SAME", "VALID"]),
    shape=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    seed=st.integers(0, 99),
)
def test_pooling_gradient_equals_tensorflow(
    kind: str, window: Any, strides: Any, padding: str, shape: tuple[int, int], seed: int, same: Any
) -> None:
    random = np.random.default_rng(seed)
    x = random.integers(-1, 2, size=(2, *shape, 3)).astype(np.float32)  # three values only: most windows tie
    weight = random.normal(size=x.shape).astype(np.float32)
    same(pooled(kind, window, strides, padding), x=x, weight=weight)


def test_first_of_equal_maxima_receives_the_gradient(both_ways: Any) -> None:
    x = np.zeros((1, 2, 4, 1), np.float32)
    x[0, 1, 2:, 0] = 5.0
    weight = np.array([[[[1.0], [10.0]]]], np.float32)
    _, found = both_ways(pooled("MAX", (2, 2), (2, 2), "VALID"), x=x, weight=weight)
    assert found["dx"][0, :, :, 0].tolist() == [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 10.0, 0.0]]
