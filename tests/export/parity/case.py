"""Parity cases, and models shared by many of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import layers

CLASSES = 5


@dataclass(frozen=True)
class Case:
    """A model that Keras and LiteRT train side by side for five steps.

    Attributes:
        name: The test's id.
        covers: The features, as `subject` or `subject: setting, setting`. A subject that is a layer, an activation,
            an optimizer or a loss has Keras' own name.
        build: Returns the model.
        loss: Returns a loss name or a Keras loss object.
        optimizer: Returns an optimizer name or a Keras optimizer object.
    """

    name: str
    covers: tuple[str, ...]
    build: Callable[[], Any]
    loss: Callable[[], Any] = lambda: "sparse_categorical_crossentropy"
    optimizer: Callable[[], Any] = lambda: "sgd"

    @property
    def subjects(self) -> dict[str, tuple[str, ...]]:
        """The settings by subject."""
        parted = [entry.partition(": ") for entry in self.covers]
        return {subject: tuple(filter(None, settings.split(", "))) for subject, _, settings in parted}


@dataclass(frozen=True)
class Family:
    """Cases of one kind, which form a row of the table.

    Attributes:
        title: The row's title.
        file: The file of the cases, relative to `tests/export/`.
        cases: The cases.
    """

    title: str
    file: str
    cases: tuple[Case, ...]


def images(*body: Any, shape: tuple[int, ...] = (8, 7, 2)) -> Any:
    """Return a classifier of images; a first convolution makes every layer's input gradient necessary."""
    first = layers.Conv2D(6, 3, padding="same", activation="relu", name="first")
    return keras.Sequential([layers.Input(shape), first, *body, layers.Flatten(), layers.Dense(CLASSES)])


def sequences(*body: Any, length: int = 9) -> Any:
    """Return a classifier of sequences of three numbers, after a first dense layer."""
    first = layers.Dense(4, name="first")
    return keras.Sequential([layers.Input((length, 3)), first, *body, layers.Flatten(), layers.Dense(CLASSES)])


def merged(parts: Callable[[Any], list[Any]], shape: tuple[int, ...] = (6,)) -> Any:
    """Return a classifier of the concatenated outputs of `parts` on a hidden layer."""
    x = layers.Input(shape)
    h = layers.Dense(6, name="first")(x)
    return keras.Model(x, layers.Dense(CLASSES)(layers.Concatenate()([layers.Flatten()(h) for h in parts(h)])))


def perceptron(*tail: Any) -> Any:
    """Return a hidden layer of 8 units followed by `tail`, by default 5 outputs."""
    last = tail or (layers.Dense(CLASSES),)
    return keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="relu"), *last])


def words(*body: Any, mask: bool = False) -> Any:
    """Return a classifier of four words: an embedding, with its sparse gradient, and `body`."""
    first = layers.Embedding(6, 3, mask_zero=mask)
    head = [*body] if body else [layers.Flatten()]
    return keras.Sequential([layers.Input((4,), dtype="int32"), first, *head, layers.Dense(CLASSES)])
