"""Models with only a part trained: adapters, single weights, backbones, and heads on int8 bodies."""

import warnings
from typing import Any

import keras
from keras import layers

from odt_sim.export import add_adapters
from parity.case import CLASSES, Case, Family


def adapted() -> Any:
    """Return a small language model with a head, with low-rank adapters on four frozen kernels."""
    x = layers.Input((5,), dtype="int32")
    words = layers.Embedding(6, 8)
    attention, dense = layers.MultiHeadAttention(2, 4), layers.Dense(8, activation="relu")
    h = words(x)
    h = layers.LayerNormalization()(dense(layers.Add()([h, attention(h, h, use_causal_mask=True)])))
    model = keras.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(h)))
    for layer in model.layers[:-1]:
        layer.trainable = False
    for layer in (words, dense, attention._query_dense, attention._value_dense):
        layer.trainable = True
        layer.enable_lora(2, lora_alpha=4, b_initializer=keras.initializers.RandomNormal(stddev=0.1))
        if getattr(layer, "bias", None) is not None:
            layer.bias.trainable = False
    return model


def adapted_images() -> Any:
    """Return a convolutional network whose convolution and inner Dense have adapters below the head."""
    convolution = layers.Conv2D(4, 3, activation="relu")
    body = [convolution, layers.BatchNormalization(), layers.Flatten(), layers.Dense(6, activation="tanh")]
    return add_adapters(keras.Sequential([layers.Input((6, 6, 2)), *body, layers.Dense(CLASSES)]), 2)


def partly_frozen() -> Any:
    """Return a perceptron with single frozen weights, on a backbone in inference mode."""
    normalization = layers.BatchNormalization()
    backbone = keras.Sequential(
        [layers.Input((6,)), layers.Dense(8, activation="tanh"), normalization], name="backbone"
    )
    x = layers.Input((6,))
    hidden, last = layers.BatchNormalization(), layers.Dense(CLASSES)
    model = keras.Model(x, last(hidden(backbone(x, training=False))))
    normalization.gamma.trainable = last.bias.trainable = False
    hidden.trainable = False
    return model


def int8(*, adapted: bool = True) -> Any:
    """Return a perceptron with an int8 body, optionally with an adapter on an int8 kernel."""
    layer = layers.Dense(16, name="middle")
    body = [layers.EinsumDense("btd,de->bte", (4, 8), name="first"), layers.Flatten(), layer]
    model = keras.Sequential([layers.Input((4, 6)), *body, layers.Dense(CLASSES, name="head")])
    for each in body:
        each.trainable = False
    with warnings.catch_warnings(action="ignore"):  # Keras warns about each layer without a kernel
        model.quantize("int8", filters=lambda layer: layer.name != "head")
    if adapted:
        layer.trainable = True
        layer.enable_lora(2, b_initializer="he_uniform")
    return model


FINE_TUNING = Family(
    "Fine-tuning",
    "parity/fine_tuning.py",
    (
        Case("adapters", ("LoRA: Dense, EinsumDense, Embedding, MultiHeadAttention",), adapted),
        Case("adapters on convolutions", ("LoRA: Conv2D",), adapted_images),
        Case(
            "frozen weights",
            ("frozen weights: single, BatchNormalization, a backbone in inference",),
            partly_frozen,
        ),
        Case("int8", ('`quantize("int8")` under a float head: Dense, EinsumDense, LoRA',), int8),
    ),
)
