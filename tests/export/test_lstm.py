"""The loop of an LSTM gives the outputs and gradients of Keras' own."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.keras.lstm import with_lstm_loop


def _outputs_and_gradients(layer: keras.layers.LSTM, own: bool, batch: int, inputs: int) -> list[Any]:
    """Return what a layer returns and the gradients of its inputs, initial states and weights."""
    random = np.random.default_rng(0)
    shapes = [batch, 5, inputs], [batch, 4], [batch, 4]
    given = [tf.constant(random.normal(size=shape), tf.float32) for shape in shapes]
    if not own:
        layer.inner_loop = with_lstm_loop(layer)
    with tf.GradientTape() as tape:
        tape.watch(given)
        results = keras.tree.flatten(layer(given[0], initial_state=given[1:], training=True))
        total = tf.add_n([tf.reduce_sum(tf.sin(3.0 * result)) for result in results])
    return [*results, *tape.gradient(total, [*given, *(v.value for v in layer.trainable_weights)])]


@pytest.mark.parametrize("settings", [{}, {"go_backwards": True}, {"use_bias": False}], ids=str)
@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize(("batch", "inputs"), [(2, 3), (9, 1), (9, 3)], ids=["rows", "narrow columns", "wide columns"])
def test_loop_equals_that_of_keras(settings: dict[str, Any], every: bool, state: bool, batch: int, inputs: int) -> None:
    layer = keras.layers.LSTM(4, unroll=True, return_sequences=every, return_state=state, **settings)
    layer.build((batch, 5, inputs))
    if layer.cell.use_bias:
        layer.cell.bias.assign(np.linspace(-1.0, 1.0, 16))
    expected, found = (_outputs_and_gradients(layer, own, batch, inputs) for own in (True, False))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [{"activation": "relu"}, {"recurrent_activation": "hard_sigmoid"}, {"dropout": 0.5}, {"recurrent_dropout": 0.5}],
    ids=str,
)
def test_other_settings_keep_the_loop_of_keras(settings: dict[str, Any]) -> None:
    layer = keras.layers.LSTM(3, **settings)
    layer.inner_loop = lambda *given: "Keras"
    assert with_lstm_loop(layer)(tf.zeros([2, 5, 4]), [tf.zeros([2, 3])] * 2, None, True) == "Keras"


def test_inference_keeps_the_loop_of_keras() -> None:
    layer = keras.layers.LSTM(3)
    layer.inner_loop = lambda *given: "Keras"
    assert with_lstm_loop(layer)(tf.zeros([2, 5, 4]), [tf.zeros([2, 3])] * 2, None, False) == "Keras"


def test_masked_sequences_keep_the_loop_of_keras() -> None:
    layer = keras.layers.LSTM(3)
    layer.inner_loop = lambda *given: "Keras"
    mask = tf.constant([[True, False]])
    assert with_lstm_loop(layer)(tf.zeros([1, 2, 4]), [tf.zeros([1, 3])] * 2, mask, True) == "Keras"
