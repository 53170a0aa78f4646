"""BatchNormalization of a 1x1 convolution with many filters equals the usual formula, in values and gradients."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import layers

from odt_sim.export.folded_normalization import convolution_of, folds, normalized
from odt_sim.export.padding_rows import real_moments

EPSILON = 1e-3


def block(filters: int, **norm: Any) -> list[layers.Layer]:
    return [layers.Conv2D(filters, 1, use_bias=False), layers.BatchNormalization(**norm)]


def model_of(*body: layers.Layer) -> keras.Model:
    keras.utils.set_random_seed(3)
    ends = [layers.GlobalAveragePooling2D(), layers.Dense(3, name="head")]
    return keras.Sequential([layers.Input((6, 5, 4)), *body, *ends])


def trained_part() -> keras.Model:
    model = model_of(*block(17), layers.ReLU(), *block(3), layers.ReLU(), *block(12), layers.ReLU())
    model.layers[1].trainable = False
    model.layers[7].trainable = False
    return model


MODELS = {
    "wider, narrower": lambda: model_of(
        *block(17), layers.ReLU(6.0), *block(3), layers.ReLU(), *block(13), layers.ReLU()
    ),
    "depthwise": lambda: model_of(
        *block(16),
        layers.ReLU(6.0),
        layers.DepthwiseConv2D(3, 2, "same", use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(),
        *block(64),
        layers.ReLU(),
    ),
    "without scale or offset": lambda: model_of(
        *block(16, scale=False), layers.ReLU(), *block(4), layers.ReLU(), *block(18, center=False), layers.ReLU()
    ),
    "strides": lambda: model_of(layers.Conv2D(16, 1, 2, use_bias=False), layers.BatchNormalization(), layers.ReLU()),
    "frozen": trained_part,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_step_equals_that_of_keras(twins: Callable[..., Any], name: str) -> None:
    twins(MODELS[name]()).agree()


def test_gradient_offset(twins: Callable[..., Any]) -> None:
    pair = twins(model_of(*block(16), layers.ReLU()), gradient_offset=True)
    details = pair.interpreter.get_signature_runner("train").get_input_details()
    assert "mu" in details
    x, y, weight = pair.batch()
    given_ = {"x": x, "y": y, "sample_weight": weight, "learning_rate": np.float32(0.1), "mu": np.float32(0.0)}
    lite = pair.call("train", **given_)
    pair.model.optimizer.learning_rate = 0.1
    assert float(np.ravel(pair.model.train_on_batch(x, y, sample_weight=weight))[0]) == pytest.approx(
        float(lite["loss"]), rel=1e-5
    )
    assert max(pair.differences().values()) < 1e-5


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    channels=st.integers(1, 5),
    times=st.integers(4, 6),
    spread=st.sampled_from([0.01, 1.0, 30.0]),
    mean=st.sampled_from([0.0, 2.0]),
    real=st.integers(1, 4),
)
def test_equals_usual_formula(seed: int, channels: int, times: int, spread: float, mean: float, real: int) -> None:
    random = np.random.default_rng(seed)
    x = (mean + random.normal(size=(4, 3, 5, channels))) * spread
    kernel, dz = random.normal(size=(1, 1, channels, times * channels)), random.normal(size=(4, 3, 5, times * channels))
    weight = np.arange(4) < real
    layer = layers.BatchNormalization(epsilon=EPSILON)
    layer.build((None, 3, 5, times * channels))
    layer.gamma.assign(random.uniform(0.5, 2.0, times * channels))
    layer.beta.assign(random.normal(size=times * channels))
    gamma, beta = (tf.constant(v.numpy(), tf.float64) for v in (layer.gamma, layer.beta))

    @tf.function
    def folded(x: tf.Tensor, kernel: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            convolution = convolution_of(tf.nn.conv2d(x, kernel, 1, "SAME"))
            assert convolution is not None
            assert folds(layer)
            share = tf.constant(weight / weight.sum(), tf.float32)
            z, mean, variance = normalized(layer, convolution, share)
            total = tf.reduce_sum(z * tf.constant(dz, tf.float32))
        gradients = tape.gradient(total, [x, kernel, layer.gamma.value, layer.beta.value])
        return [z, mean, variance, *gradients]

    with tf.GradientTape() as tape:
        inputs = [tf.constant(x), tf.constant(kernel), gamma, beta]
        tape.watch(inputs)
        y = tf.reduce_sum(inputs[0][..., None] * inputs[1][0, 0], 3)
        mean_y, variance = real_moments(y, [0, 1, 2], tf.constant(weight.astype(np.float64)))
        z = (y - mean_y) * tf.math.rsqrt(variance + EPSILON) * gamma + beta
        total = tf.reduce_sum(z * tf.constant(dz))
    expected = [z, mean_y, variance, *tape.gradient(total, inputs)]
    found = folded(tf.constant(x, tf.float32), tf.constant(kernel, tf.float32))
    for own, other in zip(found, expected, strict=True):
        limit = 3e-5 * max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=limit)


@pytest.mark.parametrize("settings_", [{"strides": 2}, {"filters": 15}, {"use_bias": True}, {"kernel_size": 3}])
def test_other_convolution_takes_the_usual_way(settings_: dict[str, Any]) -> None:
    layer = layers.Conv2D(**{"filters": 16, "kernel_size": 1, "use_bias": False, "padding": "same", **settings_})
    found: list[Any] = []
    tf.function(lambda x: found.append(convolution_of(layer(x)))).get_concrete_function(tf.TensorSpec((2, 6, 6, 4)))
    assert set(found) == {None}
