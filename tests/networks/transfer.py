"""A small network for transfer learning: a body with normalization, and a head after a Dropout."""

import keras
from keras import layers


def build(frozen: bool = False, dropout: float = 0.5) -> keras.Model:
    """Return a network from 6 features to 3 classes.

    Args:
        frozen: Whether all layers except the head are frozen.
        dropout: The rate of the Dropout.
    """
    body = [layers.Dense(5, activation="tanh", name="hidden"), layers.BatchNormalization(name="norm")]
    for layer in body:
        layer.trainable = not frozen
    head = [layers.Dropout(dropout, name="drop"), layers.Dense(3, name="classifier")]
    return keras.Sequential([layers.Input((6,)), *body, *head], name="transfer")
