"""Small plain Keras models, for the configurations under `conf/model`."""

from collections.abc import Sequence

import keras
from keras import layers


def softmax_regression(input_shape: Sequence[int], classes: int) -> keras.Model:
    """Returns multinomial logistic regression on flattened input; its output is `[batch, classes]` logits."""
    return mlp(input_shape, classes, hidden=())


def mlp(input_shape: Sequence[int], classes: int, hidden: Sequence[int]) -> keras.Model:
    """Returns a multilayer perceptron on flattened input; its output is `[batch, classes]` logits.

    Args:
        input_shape: The shape of one example.
        classes: The number of classes.
        hidden: The width of each hidden layer; each ends in a ReLU.
    """
    return keras.Sequential(
        [
            layers.Input(tuple(input_shape)),
            layers.Flatten(name="flatten"),
            *(layers.Dense(width, activation="relu", name=f"dense_{i}") for i, width in enumerate(hidden)),
            layers.Dense(classes, name="classifier"),
        ],
        name="mlp" if hidden else "softmax_regression",
    )


def cnn(
    input_shape: Sequence[int], classes: int, filters: Sequence[int], dense: Sequence[int], padding: str = "valid"
) -> keras.Model:
    """Returns a convolutional network; its output is `[batch, classes]` logits.

    Args:
        input_shape: Height, width and channels of one example.
        classes: The number of classes.
        filters: The filters of each 3x3 convolution; a ReLU and a 2x2 max-pooling follow each.
        dense: The width of each hidden dense layer; each ends in a ReLU.
        padding: `same` or `valid`, of the convolutions.
    """
    model = keras.Sequential([layers.Input(tuple(input_shape))], name="cnn")
    for i, count in enumerate(filters):
        model.add(layers.Conv2D(count, 3, padding=padding, activation="relu", name=f"conv_{i}"))
        model.add(layers.MaxPooling2D(2, name=f"pool_{i}"))
    model.add(layers.Flatten(name="flatten"))
    for i, width in enumerate(dense):
        model.add(layers.Dense(width, activation="relu", name=f"dense_{i}"))
    model.add(layers.Dense(classes, name="classifier"))
    return model
