"""Joins of slices: the converter takes them for reshapes."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from odt_sim.export import export_model


class Joined(keras.layers.Layer):
    """Joins the slices along one axis on another one."""

    def call(self, x: Any) -> Any:
        steps_first = tf.reshape(tf.concat(tf.unstack(x, axis=1), 0), [3, 4, 2])
        channels_first = tf.reshape(tf.concat(tf.unstack(x, axis=2), 1), [4, 6])
        same_axis = tf.reshape(tf.concat(tf.unstack(x, axis=1), 1), [4, 6])
        return tf.concat([tf.reshape(tf.transpose(steps_first, [1, 0, 2]), [4, 6]), channels_first, same_axis], 1)


def test_slices_joined_on_another_axis_keep_their_order(tmp_path: Path) -> None:
    x = keras.Input(batch_shape=(4, 3, 2))
    model = keras.Model(x, Joined()(keras.layers.Dense(2)(x)))
    path = export_model(model, tmp_path / "m.tflite", loss="mean_squared_error", optimizer="sgd", batch_size=4)
    rows = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    found = Interpreter(str(path)).get_signature_runner("infer")(x=rows)["logits"]
    np.testing.assert_allclose(found, model(rows), rtol=1e-5)
