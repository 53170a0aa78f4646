"""Processing images in parts of the batch gives the results of the whole batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.lowering.layout import batch_parts
from odt_sim.export.lowering.layout.batch_parts import BatchParts

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _small_images_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_parts, "SIZES", range(1, 1 << 20))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of parts of all values that were computed in parts."""
    counts: list[int] = []
    initialize = BatchParts.__init__

    def counted(self: BatchParts, count: int, *others: Any) -> None:
        counts.append(count)
        initialize(self, count, *others)

    monkeypatch.setattr(BatchParts, "__init__", counted)
    return counts


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def normalized(x: Any, scale: Any) -> Any:
    mean = tf.reduce_mean(x, [0, 1, 2])
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), [0, 1, 2])
    return (x - mean) * tf.math.rsqrt(variance + 1e-3) * scale


def residual(x: Any, w: Any, v: Any, scale: Any, share: Any) -> dict[str, Any]:
    """Return loss and gradients of two convolutions with normalization, and ops that join and split their parts."""
    with tf.GradientTape() as tape:
        tape.watch([x, w, v, scale])
        first = tf.nn.relu(normalized(tf.nn.conv2d(x, w, 1, "SAME"), scale))
        second = tf.nn.bias_add(tf.nn.conv2d(first, v, [1, 2, 2, 1], "SAME"), scale)
        short = tf.nn.avg_pool2d(first, 2, 2, "SAME") * share  # needs the whole batch
        last = tf.nn.relu6(second + short)
        within = tf.reduce_sum(last, [1, 2], keepdims=True)  # one number per channel and example
        loss = tf.reduce_mean(tf.square(last - 0.01 * within)) + tf.reduce_sum(tf.reduce_mean(first, 0))
    gradients = tape.gradient(loss, [x, w, v, scale])
    return {"loss": loss, **dict(zip(("dx", "dw", "dv", "dscale"), gradients, strict=True))}


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "parts"), [(8, {4}), (6, {3}), (2, {2}), (10, {2}), (1, set()), (5, set())])
def test_residual_block_equals_tensorflow(
    batch: int, parts: set[int], same: Callable[..., None], made: list[int]
) -> None:
    x, w, v = normal(batch, 6, 8, 5), 0.3 * normal(3, 3, 5, 5), 0.3 * normal(3, 3, 5, 5)
    same(residual, x=x, w=w, v=v, scale=np.abs(normal(5)), share=normal(batch, 1, 1, 1), atol=2e-5)
    assert set(made) == parts


def test_a_kernel_as_high_as_the_batch_is_not_cut(same: Callable[..., None], made: list[int]) -> None:
    def function(x: Any, w: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            loss = tf.reduce_sum(tf.nn.relu(tf.nn.conv2d(tf.nn.conv2d(x, w, 1, "SAME"), w, 1, "VALID")))
        gradients = tape.gradient(loss, [x, w])
        return {"loss": loss, "dx": gradients[0], "dw": gradients[1]}

    same(function, x=normal(3, 6, 6, 3), w=normal(3, 3, 3, 3), atol=2e-3)
    assert set(made) == {3}


def test_pooled_convolutions_take_the_whole_batch(same: Callable[..., None], made: list[int]) -> None:
    def function(x: Any, w: Any, v: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([w, v])
            y = tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME"))
            loss = tf.reduce_sum(tf.square(tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(y, v, 1, "SAME")), 2, 2, "VALID")))
        gradients = tape.gradient(loss, [w, v])
        return {"loss": loss, "dw": gradients[0], "dv": gradients[1]}

    same(function, x=normal(4, 6, 6, 3), w=0.3 * normal(3, 3, 3, 4), v=0.3 * normal(3, 3, 4, 4), atol=2e-3)
    assert made
