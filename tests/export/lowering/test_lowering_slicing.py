"""Gradients of slices, repetitions and resizing against TensorFlow."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

SLICES: dict[str, Callable[[Any], Any]] = {
    "some": lambda x: x[:, 1:3, :-2],
    "strides": lambda x: x[::2, 3::-2, 1:6:3],
    "one of an axis": lambda x: x[1, ..., -1],
    "a new axis": lambda x: x[:, tf.newaxis, 2:],
    "none": lambda x: x[...],
    "repeated": lambda x: tf.repeat(tf.repeat(x, 3, axis=1), 2, axis=2),
    "tiled": lambda x: tf.tile(x, [1, 2, 3]),
    "broadcast": lambda x: x[:, :, tf.newaxis] * tf.reshape(x, [4, 1, 5, 7]),
    "stacked": lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], axis=2),
    "split": lambda x: tf.concat(tf.split(x, [2, 5], axis=-1)[::-1], axis=-1),
    "bilinear": lambda x: tf.image.resize(x[..., tf.newaxis], (3, 12)),
    "nearest": lambda x: tf.image.resize(x[..., tf.newaxis], (8, 3), method="nearest"),
}


@pytest.mark.parametrize("name", SLICES)
def test_slice_gradient_equals_tensorflow(name: str, same: Any) -> None:
    def function(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = SLICES[name](x)
            total = tf.reduce_sum(y * y * y)
        return {"y": y, "dx": tape.gradient(total, x)}

    same(function, x=np.random.default_rng(0).integers(-2, 3, (4, 5, 7)).astype(np.float32))
