"""Convolutions and poolings."""

from typing import Any

import keras
from keras import layers

from parity.case import CLASSES, Case, Family, images, merged, sequences


def pooled_and_skipped() -> Any:
    """Return a model in which a ReLU feeds a pooling and another layer, so that no op can move after the pooling."""
    x = layers.Input((6, 6, 1))
    h = layers.Conv2D(6, 3, activation="relu")(x)
    parts = [layers.MaxPooling2D(2)(h), h, layers.GlobalMaxPooling2D(keepdims=True)(h)]
    parts += [layers.AdaptiveAveragePooling2D((3, 2))(h), layers.AdaptiveMaxPooling2D(3)(h)]
    return keras.Model(x, layers.Dense(CLASSES)(layers.Concatenate()([layers.Flatten()(part) for part in parts])))


def pooled(h: Any) -> list[Any]:
    kinds = [layers.GlobalMaxPooling1D(), layers.GlobalAveragePooling1D(), layers.MaxPooling1D(2, strides=1)]
    return [kind(h) for kind in [*kinds, layers.AveragePooling1D(3, strides=2, padding="same")]]


CONVOLUTIONS = Family(
    "Convolutions",
    "parity/convolutions.py",
    (
        Case(
            "convolutions and poolings as the benchmarks have them",
            ("Conv2D: `valid`", "MaxPooling2D"),
            lambda: images(
                layers.MaxPooling2D(2),
                layers.Conv2D(5, (3, 2), activation="relu"),
                layers.MaxPooling2D(2),
                shape=(11, 10, 1),
            ),
        ),
        Case(
            "convolutions with strides and dilation",
            ("Conv2D: strides, dilation, `same`, no bias",),
            lambda: images(
                layers.Conv2D(5, 2, dilation_rate=2, activation="tanh"),
                layers.Conv2D(5, 3, strides=2, padding="same", activation="sigmoid"),
                layers.Conv2D(6, 1),
                layers.Conv2D(5, 2, strides=(2, 3), use_bias=False),
                shape=(10, 9, 2),
            ),
        ),
        Case(
            "grouped convolutions",
            ("Conv2D: groups",),
            lambda: images(
                layers.Conv2D(8, 3, groups=2, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Conv2D(4, 2, groups=4, padding="same"),
            ),
        ),
        Case(
            "transposed convolutions",
            ("Conv2DTranspose: strides, `same`, `valid`, output padding",),
            lambda: images(
                layers.Conv2DTranspose(5, 3, strides=2, padding="same"),
                layers.Conv2DTranspose(6, 2, strides=(1, 3)),
                layers.Conv2DTranspose(4, 3, strides=2, padding="same", output_padding=0),
                shape=(4, 3, 2),
            ),
        ),
        Case(
            "depthwise and separable convolutions",
            ("DepthwiseConv2D: strides, dilation, `same`, `valid`, multiplier", "SeparableConv2D: `same`, strides"),
            lambda: images(
                layers.DepthwiseConv2D(3, depth_multiplier=2, activation="relu"),
                layers.SeparableConv2D(5, 3, padding="same", strides=2),
                layers.DepthwiseConv2D(2, dilation_rate=2, padding="same"),
                layers.DepthwiseConv2D(2, strides=2, padding="same"),
            ),
        ),
        Case(
            "convolutions along one axis",
            (
                "Conv1D: strides, dilation, `same`, `valid`, `causal`, groups",
                "Conv1DTranspose: strides",
                "SeparableConv1D: strides",
                "DepthwiseConv1D",
            ),
            lambda: sequences(
                layers.Conv1D(6, 3, strides=2, padding="same"),
                layers.Conv1D(4, 2, dilation_rate=2, padding="causal"),
                layers.Conv1DTranspose(6, 3, strides=2),
                layers.Conv1D(4, 3, groups=2),
                layers.SeparableConv1D(5, 3, strides=2),
                layers.DepthwiseConv1D(2),
            ),
        ),
    ),
)

POOLINGS = Family(
    "Pooling",
    "parity/convolutions.py",
    (
        Case(
            "max-pools that overlap, lie apart and fit",
            ("MaxPooling2D: overlapping, with gaps, ties broken as in TensorFlow",),
            lambda: images(
                layers.MaxPooling2D(3, strides=2, padding="same"),
                layers.MaxPooling2D(2, strides=3),
                layers.Conv2D(5, 2, padding="same"),
                layers.MaxPooling2D((3, 2), strides=(1, 2)),
                shape=(19, 19, 1),
            ),
        ),
        Case(
            "max-pools that leave a rest",
            ("MaxPooling2D",),
            lambda: images(layers.MaxPooling2D(3), layers.Conv2D(3, 1), layers.MaxPooling2D(2), shape=(14, 13, 1)),
        ),
        Case(
            "average-pools",
            ("AveragePooling2D: overlapping", "GlobalAveragePooling2D"),
            lambda: images(
                layers.AveragePooling2D(2),
                layers.AveragePooling2D(3, strides=2, padding="same"),
                layers.GlobalAveragePooling2D(),
            ),
        ),
        Case(
            "a pooling beside a skip connection",
            ("GlobalMaxPooling2D", "AdaptiveAveragePooling2D", "AdaptiveMaxPooling2D"),
            pooled_and_skipped,
        ),
        Case(
            "pooling of sequences",
            (
                "MaxPooling1D: overlapping",
                "AveragePooling1D: overlapping",
                "GlobalMaxPooling1D",
                "GlobalAveragePooling1D",
            ),
            lambda: merged(pooled, shape=(9, 3)),
        ),
    ),
)
