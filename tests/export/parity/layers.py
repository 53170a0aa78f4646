"""Dense layers, embeddings, normalizations, random layers, regularizers and constraints."""

from typing import Any

import keras
import numpy as np
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


class Sampling(layers.Layer):  # type: ignore[misc]
    """The sampling of a variational autoencoder: z = mean + exp(log variance / 2) n with normal n."""

    def __init__(self) -> None:
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        mean, log_variance = keras.ops.split(x, 2, -1)
        noise = keras.random.normal(keras.ops.shape(mean), seed=self.seed_generator)
        self.add_loss(keras.ops.mean(keras.ops.exp(log_variance) + mean**2 - log_variance - 1.0))
        return mean + keras.ops.exp(0.5 * log_variance) * noise


class Draws(layers.Layer):  # type: ignore[misc]
    """A layer that multiplies by random integers and adds shuffled uniform numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = [keras.random.SeedGenerator(seed) for seed in range(3)]

    def call(self, x: Any) -> Any:
        whole = keras.random.randint(keras.ops.shape(x), 1, 4, seed=self.seeds[0])
        uniform = keras.random.uniform((3,), -1.0, 1.0, seed=self.seeds[1])
        mixed = keras.random.shuffle(keras.ops.concatenate([uniform, uniform - 2.0]), seed=self.seeds[2])
        return x * keras.ops.cast(whole, x.dtype) + mixed


def augmented(*body: Any) -> Any:
    """Return a classifier of color images with random layers at the input."""
    last = (layers.Conv2D(6, 3), layers.GlobalAveragePooling2D(), layers.Dense(CLASSES))
    return keras.Sequential([layers.Input((8, 8, 3)), *body, *last])


def preprocessed() -> Any:
    """Return a classifier of four integers that are normalized, looked up and encoded."""
    numbers = layers.Input((4,), dtype="int32")
    x = keras.ops.cast(numbers, "float32")
    normal = layers.Normalization(mean=[0.1, 0.2, 0.3, 0.4], variance=[1.0, 2.0, 3.0, 4.0])
    learnt = layers.Normalization()
    learnt.adapt(np.random.default_rng(0).normal(2.0, 3.0, (50, 4)).astype(np.float32))
    found = layers.IntegerLookup(vocabulary=[3, 1, 0])(numbers)
    parts = [normal(x), learnt(x), layers.Embedding(4, 3)(found)]
    parts.append(layers.CategoryEncoding(6, output_mode="one_hot")(numbers[:, 0]))
    parts.append(layers.CategoryEncoding(6, output_mode="multi_hot")(numbers))
    buckets = layers.Discretization([0.5, 2.0, 3.0])(x)
    parts += [layers.Embedding(4, 3)(buckets), layers.Discretization([0.5, 2.0], output_mode="one_hot")(x[:, :1])]
    h = layers.Concatenate()([layers.Flatten()(part) for part in parts])
    return keras.Model(numbers, layers.Dense(CLASSES)(h))


def spectrum(x: Any) -> Any:
    real, imaginary = keras.ops.stft(x, sequence_length=16, sequence_stride=8, fft_length=16)
    return keras.ops.log(real * real + imaginary * imaginary + 0.001)


def spectrograms() -> Any:
    """Return a classifier of sounds of 64 samples, with three spectrograms."""
    x = layers.Input((64,))
    settings = {"sampling_rate": 100, "min_freq": 1.0, "max_freq": 50.0, "top_db": 200.0}
    mel = layers.MelSpectrogram(16, sequence_stride=8, num_mel_bins=6, **settings)
    stft = layers.STFTSpectrogram(mode="psd", frame_length=16, frame_step=8, fft_length=16)
    own = layers.Lambda(spectrum)
    h = layers.Concatenate()([layers.Flatten()(part) for part in (mel(x), stft(x[..., None]), own(x))])
    return keras.Model(x, layers.Dense(CLASSES)(h))


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
            ("regularizers: L1, L2, L1L2, orthogonal, activity", "constraints: MaxNorm, NonNeg, UnitNorm"),
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
            ("BatchNormalization: images, vectors, running statistics",),
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
            ("BatchNormalization: sequences, any axis",),
            lambda: sequences(
                layers.BatchNormalization(axis=1), layers.Conv1D(3, 2, use_bias=False), layers.BatchNormalization()
            ),
        ),
        Case(
            "batch normalization of masked sequences",
            ("BatchNormalization: masked sequences",),
            lambda: words(layers.BatchNormalization(), layers.GlobalAveragePooling1D(), mask=True),
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
        Case(
            "transforms of images",
            ("RandomTranslation", "RandomRotation", "RandomZoom", "RandomShear"),
            lambda: images(
                layers.RandomRotation(0.2),
                layers.RandomTranslation(0.2, 0.3),
                layers.RandomZoom(0.3, fill_mode="constant", fill_value=0.5),
                layers.RandomShear(0.3, 0.2, fill_mode="wrap"),
            ),
        ),
        Case(
            "colors of images",
            (
                *(
                    "RandomCrop",
                    "RandomContrast",
                    "RandomBrightness",
                    "RandomGrayscale",
                    "RandomHue",
                    "RandomSaturation",
                ),
                *("RandomColorJitter", "RandomInvert", "RandomSharpness", "Solarization"),
            ),
            lambda: augmented(
                layers.RandomCrop(6, 6),
                layers.RandomContrast(0.3, value_range=(0, 1)),
                layers.RandomBrightness(0.3, value_range=(0, 1)),
                layers.RandomGrayscale(0.5),
                layers.RandomHue(0.2, value_range=(0, 1)),
                layers.RandomSaturation(0.3, value_range=(0, 1)),
                layers.RandomColorJitter((0, 1), 0.2, 0.2, 0.2, 0.2),
                layers.RandomInvert(value_range=(0, 1)),
                layers.RandomSharpness(0.3, value_range=(0, 1)),
                layers.Solarization(value_range=(0, 1)),
            ),
        ),
        Case(
            "further random images",
            ("RandomErasing", "RandomGaussianBlur", "RandomPerspective"),
            lambda: augmented(
                layers.RandomErasing(value_range=(0, 1)),
                layers.RandomGaussianBlur(value_range=(0, 1)),
                layers.RandomPerspective(),
            ),
        ),
        Case(
            "noise",
            ("GaussianNoise", "GaussianDropout", "SpatialDropout3D"),
            lambda: images(
                layers.GaussianNoise(0.3),
                layers.GaussianDropout(0.3),
                layers.Reshape((2, 4, 7, 6)),
                layers.SpatialDropout3D(0.3),
            ),
        ),
        Case(
            "random numbers in own layers",
            ("`keras.random`: normal, uniform, randint, shuffle",),
            lambda: perceptron(layers.Dense(12), Sampling(), Draws(), layers.Dense(CLASSES)),
        ),
    ),
)

PREPROCESSING = Family(
    "Preprocessing in the model",
    "parity/layers.py",
    (
        Case(
            "preprocessing",
            (
                *("Normalization: given, adapted", "IntegerLookup", "CategoryEncoding: one-hot, multi-hot"),
                "Discretization: number, one-hot",
            ),
            preprocessed,
        ),
        Case(
            "spectrograms of sound",
            ("STFTSpectrogram: power", "MelSpectrogram", "`keras.ops.stft`"),
            spectrograms,
        ),
        Case(
            "resized images",
            ("Resizing: bicubic, cropped, padded", "CenterCrop", "Rescaling"),
            lambda: images(
                layers.Rescaling(0.5, 0.1),
                layers.Resizing(6, 9, interpolation="bicubic"),
                layers.Resizing(7, 7, crop_to_aspect_ratio=True),
                layers.Resizing(6, 8, pad_to_aspect_ratio=True),
                layers.CenterCrop(5, 5),
            ),
        ),
    ),
)
