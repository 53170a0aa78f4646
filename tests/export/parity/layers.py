"""Dense layers, embeddings, normalizations, random layers, regularizers and constraints."""

from typing import Any

import keras
import tensorflow as tf
from keras import constraints, layers, regularizers

from parity.case import CLASSES, Case, Family, images, perceptron, sequences, words


def nested() -> Any:
    inner = perceptron(layers.Dense(4))
    return keras.Sequential([layers.Input((6,)), inner, layers.Dense(CLASSES)])


def frozen() -> Any:
    """Return a head on a frozen body with a normalization."""
    body = keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="relu"), layers.BatchNormalization()])
    body.trainable = False
    return keras.Sequential([layers.Input((6,)), body, layers.Dense(CLASSES)])


def regularized() -> Any:
    settings = [
        {
            "kernel_regularizer": regularizers.L2(0.01),
            "bias_regularizer": regularizers.L1(0.1),
            "bias_initializer": "normal",
        },
        {"kernel_regularizer": regularizers.OrthogonalRegularizer(0.1), "kernel_constraint": constraints.MaxNorm(0.5)},
        {"kernel_constraint": constraints.NonNeg()},
        {"kernel_constraint": constraints.UnitNorm()},
    ]
    last = layers.Dense(CLASSES, kernel_regularizer=regularizers.L1L2(0.01, 0.02), activity_regularizer="l1")
    return perceptron(*(layers.Dense(7, **own) for own in settings), last)


def chosen(x: Any) -> Any:
    """Return one of two functions of the batch."""
    return tf.cond(tf.reduce_sum(x[:1]) > 3.0, lambda: tf.exp(0.3 * x), lambda: x * x)


DENSE = Family(
    "Dense layers",
    "parity/layers.py",
    (
        Case("a model in a model", ("Dense", "nested models"), nested),
        Case(
            "einsums, shared over time",
            ("EinsumDense", "TimeDistributed"),
            lambda: sequences(
                layers.EinsumDense("abc,cd->abd", output_shape=(9, 5), bias_axes="d"),
                layers.EinsumDense("abc,bcd->abd", output_shape=(9, 4)),
                layers.TimeDistributed(layers.Dense(3)),
            ),
        ),
        Case("a condition", ("Lambda: `tf.cond`",), lambda: perceptron(layers.Lambda(chosen), layers.Dense(CLASSES))),
        Case("an embedding", ("Embedding",), words),
    ),
)

WEIGHTS = Family(
    "Weights",
    "parity/layers.py",
    (
        Case(
            "regularizers and constraints",
            ("regularizers: L1, L2, L1L2, orthogonal, of activity", "constraints: MaxNorm, NonNeg, UnitNorm"),
            regularized,
        ),
        Case("a frozen body", ("frozen layers",), frozen),
    ),
)

NORMALIZATIONS = Family(
    "Normalization",
    "parity/layers.py",
    (
        Case(
            "batch normalization",
            ("BatchNormalization: of images, of vectors, its statistics",),
            lambda: images(
                layers.BatchNormalization(),
                layers.Activation("tanh"),
                layers.Conv2D(4, 3, strides=2, use_bias=False),
                layers.BatchNormalization(momentum=0.9, scale=False),
                layers.ReLU(),
                layers.Flatten(),
                layers.Dense(6, use_bias=False),
                layers.BatchNormalization(center=False),
            ),
        ),
        Case(
            "batch normalization along other axes",
            ("BatchNormalization: of sequences, any axis",),
            lambda: sequences(
                layers.BatchNormalization(axis=1), layers.Conv1D(3, 2, use_bias=False), layers.BatchNormalization()
            ),
        ),
        Case(
            "normalizations of an example",
            ("LayerNormalization", "GroupNormalization", "RMSNormalization", "UnitNormalization"),
            lambda: images(
                layers.LayerNormalization(axis=(1, 2)),
                layers.GroupNormalization(2),
                layers.RMSNormalization(),
                layers.LayerNormalization(),
                layers.UnitNormalization(),
            ),
        ),
    ),
)

RANDOM = Family(
    "Random layers, with the same masks as Keras",
    "parity/layers.py",
    (
        Case(
            "dropout of images",
            ("Dropout", "SpatialDropout2D", "RandomFlip"),
            lambda: images(layers.RandomFlip(), layers.SpatialDropout2D(0.4), layers.Flatten(), layers.Dropout(0.3)),
            optimizer=lambda: "adam",
        ),
        Case(
            "dropout of sequences",
            ("SpatialDropout1D", "Dropout: noise shape", "AlphaDropout"),
            lambda: sequences(
                layers.SpatialDropout1D(0.4), layers.Dropout(0.3, noise_shape=(8, 1, 4)), layers.AlphaDropout(0.2)
            ),
        ),
    ),
)
