"""After three steps LiteRT and Keras hold the same weights and optimizer slots."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

TOLERANCE = 1e-6
CLASSES = 5


def image_model(*body: Any, shape: tuple[int, ...] = (7, 6, 2)) -> Any:
    """Returns a classifier of images; a first convolution makes the gradient of every layer's input needed."""
    first = layers.Conv2D(6, 3, padding="same", activation="relu")
    return keras.Sequential([layers.Input(shape), first, *body, layers.Flatten(), layers.Dense(CLASSES)])


def dense_model(*tail: Any) -> Any:
    return keras.Sequential(
        [layers.Input((6,)), layers.Dense(8, activation="relu"), *(tail or [layers.Dense(CLASSES)])]
    )


def embedding_model() -> Any:
    words = layers.Input((4,), dtype="int32")
    vectors = layers.Embedding(6, 3)(words)
    return keras.Model(words, layers.Dense(CLASSES)(layers.Flatten()(vectors)))


def branching_model() -> Any:
    """Returns a model in which a ReLU feeds a pooling and another layer, so that nothing can move behind the pooling."""
    x = layers.Input((6, 6, 1))
    h = layers.Conv2D(6, 3, activation="relu")(x)
    both = layers.Concatenate()([layers.Flatten()(layers.MaxPooling2D(2)(h)), layers.Flatten()(h)])
    return keras.Model(x, layers.Dense(CLASSES)(both))


MODELS: dict[str, Callable[[], Any]] = {
    "conv, pool, conv, pool as the benchmarks have it": lambda: image_model(
        layers.MaxPooling2D(2), layers.Conv2D(5, (3, 2), activation="relu"), layers.MaxPooling2D(2), shape=(11, 10, 1)
    ),
    "strides, no bias, 1x1, sigmoid": lambda: image_model(
        layers.Conv2D(5, 3, strides=2, padding="same", activation="sigmoid"),
        layers.Conv2D(6, 1),
        layers.Conv2D(5, 2, strides=(2, 3), use_bias=False),
        shape=(8, 9, 2),
    ),
    "dilation, tanh": lambda: image_model(layers.Conv2D(5, 2, dilation_rate=2, activation="tanh")),
    "overlapping max-pools": lambda: image_model(
        layers.MaxPooling2D(3, strides=2, padding="same"), layers.MaxPooling2D((3, 2), strides=(1, 2)), shape=(9, 9, 1)
    ),
    "max-pools 3x3 and with gaps": lambda: image_model(
        layers.MaxPooling2D(2, strides=3),
        layers.Conv2D(5, 2, padding="same"),
        layers.MaxPooling2D(3),
        shape=(11, 11, 1),
    ),
    "average-pools": lambda: image_model(
        layers.AveragePooling2D(2),
        layers.AveragePooling2D(3, strides=2, padding="same"),
        layers.GlobalAveragePooling2D(),
    ),
    "pool and skip connection": branching_model,
    "rescaling, reshape, relu, softmax, layer norm, regularizer": lambda: keras.Sequential(
        [
            layers.Input((4, 3)),
            layers.Rescaling(0.5, -0.1),
            layers.Reshape((2, 6)),
            layers.Flatten(),
            layers.Dense(8),
            layers.ReLU(),
            layers.LayerNormalization(),
            layers.Dense(8),
            layers.Activation("softmax"),
            layers.Dense(CLASSES, kernel_regularizer=keras.regularizers.L2(0.01)),
        ]
    ),
    "relu6, leaky relu, elu, silu": lambda: keras.Sequential(
        [
            layers.Input((6,)),
            *(layers.Dense(8, activation=name) for name in ("relu6", "leaky_relu", "elu", "silu")),
            layers.Dense(CLASSES),
        ]
    ),
    "embedding": embedding_model,
    "nested": lambda: keras.Sequential([layers.Input((6,)), dense_model(layers.Dense(4)), layers.Dense(CLASSES)]),
}


def check(pair: Any) -> None:
    before = [v.numpy() for v in pair.model.trainable_weights]
    losses = pair.train(3)
    np.testing.assert_allclose(*zip(*losses, strict=True), atol=2e-6)
    moved = [float(np.abs(v.numpy() - old).max()) for v, old in zip(pair.model.trainable_weights, before, strict=True)]
    assert min(moved) > 1e-4
    assert max(pair.differences().values()) < TOLERANCE, pair.differences()


@pytest.mark.parametrize("name", MODELS)
def test_layers_agree_with_keras(name: str, twins: Any) -> None:
    keras.utils.set_random_seed(1)
    check(twins(MODELS[name]()))
