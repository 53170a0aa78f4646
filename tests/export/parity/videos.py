"""Layers on videos and other volumes, `[depth, height, width, channels]`."""

from typing import Any

import keras
from keras import layers

from parity.case import CLASSES, Case, Family


def videos(*body: Any, shape: tuple[int, ...] = (4, 5, 6, 2)) -> Any:
    """Return a classifier of videos; a first dense layer makes every layer's input gradient necessary."""
    first = layers.Dense(4, name="first")
    return keras.Sequential([layers.Input(shape), first, *body, layers.Flatten(), layers.Dense(CLASSES)])


def pooled() -> Any:
    """Return a model with all poolings of one video without ties, which eager TensorFlow treats differently."""
    x = layers.Input((4, 5, 6, 2))
    h = layers.Conv3D(4, 3, padding="same", name="first")(x)
    kinds = [layers.MaxPooling3D(2), layers.AveragePooling3D((1, 3, 2), strides=2, padding="same")]
    kinds += [layers.MaxPooling3D(3, strides=1, padding="same"), layers.AveragePooling3D(2)]
    kinds += [layers.GlobalMaxPooling3D(), layers.GlobalAveragePooling3D()]
    kinds += [layers.AdaptiveAveragePooling3D(3), layers.AdaptiveMaxPooling3D((2, 3, 2))]
    parts = [layers.Flatten()(kind(h)) for kind in kinds]
    return keras.Model(x, layers.Dense(CLASSES)(layers.Concatenate()(parts)))


VIDEOS = Family(
    "Videos",
    "parity/videos.py",
    (
        Case(
            "convolutions of videos",
            ("Conv3D: `valid`, `same`, strides", "MaxPooling3D", "BatchNormalization: videos"),
            lambda: videos(
                layers.Conv3D(4, 3, padding="same", activation="tanh"),
                layers.BatchNormalization(),
                layers.MaxPooling3D(2),
                layers.Conv3D(3, (1, 2, 2), strides=(2, 1, 1)),
            ),
        ),
        Case(
            "further convolutions of videos",
            ("Conv3D: dilation, groups", "Conv3DTranspose: strides, `same`"),
            lambda: videos(
                layers.Conv3D(4, 2, dilation_rate=(1, 2, 1)),
                layers.Conv3D(4, 2, groups=2, activation="tanh"),
                layers.Conv3DTranspose(3, 3, strides=2, padding="same"),
            ),
        ),
        Case(
            "poolings of videos",
            (
                "MaxPooling3D: overlapping",
                "AveragePooling3D: overlapping",
                "GlobalMaxPooling3D",
                "GlobalAveragePooling3D",
                "AdaptiveAveragePooling3D",
                "AdaptiveMaxPooling3D",
            ),
            pooled,
        ),
        Case(
            "shapes of videos",
            ("ZeroPadding3D", "UpSampling3D", "Cropping3D", "GroupNormalization", "SpatialDropout3D"),
            lambda: videos(
                layers.ZeroPadding3D(1),
                layers.Cropping3D((1, 2, 2)),
                layers.UpSampling3D((2, 1, 2)),
                layers.GroupNormalization(2),
                layers.SpatialDropout3D(0.3),
            ),
        ),
        Case(
            "convolutional recurrent layers",
            ("ConvLSTM1D: backwards", "ConvLSTM2D: of sequences, dropout, recurrent dropout"),
            lambda: videos(
                layers.ConvLSTM2D(3, 2, return_sequences=True, dropout=0.1, recurrent_dropout=0.1),
                layers.Reshape((3, 20, 3)),
                layers.ConvLSTM1D(2, 3, go_backwards=True, padding="same"),
                shape=(3, 5, 6, 2),
            ),
        ),
        Case(
            "a convolutional recurrent layer of volumes",
            ("ConvLSTM3D",),
            lambda: videos(layers.ConvLSTM3D(2, 2), shape=(2, 3, 4, 3, 2)),
        ),
    ),
)
