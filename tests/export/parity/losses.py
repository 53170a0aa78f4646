"""Losses with sample weights."""

from typing import Any

from keras import layers, losses

from parity.case import Case, Family, perceptron


def softmax(*tail: Any) -> Any:
    return perceptron(layers.Dense(3, activation="softmax"), *tail)


def sigmoid(units: int, *tail: Any) -> Any:
    return perceptron(layers.Dense(units, activation="sigmoid"), *tail)


LOSSES = Family(
    "Losses, with sample weights",
    "parity/losses.py",
    (
        Case(
            "sparse cross-entropy",
            ("SparseCategoricalCrossentropy: from logits",),
            perceptron,
            lambda: losses.SparseCategoricalCrossentropy(from_logits=True),
        ),
        Case(
            "sparse cross-entropy of a softmax",
            ("SparseCategoricalCrossentropy: of a softmax",),
            softmax,
            losses.SparseCategoricalCrossentropy,
        ),
        Case(
            "sparse cross-entropy of probabilities",
            ("SparseCategoricalCrossentropy: of probabilities",),
            lambda: softmax(layers.Rescaling(1.0)),
            losses.SparseCategoricalCrossentropy,
        ),
        Case(
            "cross-entropy",
            ("CategoricalCrossentropy: from logits, label smoothing",),
            perceptron,
            lambda: losses.CategoricalCrossentropy(True, label_smoothing=0.1),
        ),
        Case(
            "cross-entropy of a softmax",
            ("CategoricalCrossentropy: of a softmax",),
            softmax,
            losses.CategoricalCrossentropy,
        ),
        Case(
            "cross-entropy of probabilities, smoothed",
            ("CategoricalCrossentropy: of probabilities, label smoothing",),
            lambda: softmax(layers.Rescaling(1.0)),
            lambda: losses.CategoricalCrossentropy(label_smoothing=0.2),
        ),
        Case(
            "binary cross-entropy",
            ("BinaryCrossentropy: from logits",),
            perceptron,
            lambda: losses.BinaryCrossentropy(from_logits=True),
        ),
        Case(
            "binary cross-entropy of a sigmoid, by name",
            ("BinaryCrossentropy: of a sigmoid",),
            lambda: sigmoid(1),
            lambda: "binary_crossentropy",
        ),
        Case(
            "binary cross-entropy of probabilities, smoothed",
            ("BinaryCrossentropy: of probabilities, label smoothing",),
            lambda: sigmoid(2, layers.Rescaling(1.0)),
            lambda: losses.BinaryCrossentropy(label_smoothing=0.1),
        ),
        Case("mean squared error", ("MeanSquaredError",), perceptron, lambda: "mse"),
        Case("mean absolute error", ("MeanAbsoluteError",), perceptron, lambda: "mae"),
        Case("Huber", ("Huber: any delta",), perceptron, lambda: losses.Huber(0.7)),
        Case("cosine similarity", ("CosineSimilarity",), perceptron, lambda: "cosine_similarity"),
        Case("KL divergence", ("KLDivergence",), softmax, lambda: "kl_divergence"),
    ),
)
