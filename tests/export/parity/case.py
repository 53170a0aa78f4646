"""What a parity case is, and the models that many are built on."""

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
        name: What the test is called.
        covers: What the case proves, as `subject` or `subject: setting, setting`. A subject that is a layer, an activation,
            an optimizer or a loss has Keras' own name.
        build: Returns the model.
        loss: Returns what is minimized: a name of a loss or a Keras loss object.
        optimizer: Returns the optimizer: a name or a Keras optimizer object.
    """

    name: str
    covers: tuple[str, ...]
    build: Callable[[], Any]
    loss: Callable[[], Any] = lambda: "sparse_categorical_crossentropy"
    optimizer: Callable[[], Any] = lambda: "sgd"

    @property
    def subjects(self) -> dict[str, tuple[str, ...]]:
        """The settings of each subject."""
        parted = [entry.partition(": ") for entry in self.covers]
        return {subject: tuple(filter(None, settings.split(", "))) for subject, _, settings in parted}


@dataclass(frozen=True)
class Family:
    """Cases of one kind: a row of the table.

    Attributes:
        title: The row's title.
        file: Where the cases stand, from `tests/export/`.
        cases: The cases.
    """

    title: str
    file: str
    cases: tuple[Case, ...]


def images(*body: Any, shape: tuple[int, ...] = (8, 7, 2)) -> Any:
    """Returns a classifier of images; a first convolution makes the gradient of every layer's input needed."""
    first = layers.Conv2D(6, 3, padding="same", activation="relu", name="first")
    return keras.Sequential([layers.Input(shape), first, *body, layers.Flatten(), layers.Dense(CLASSES)])


def sequences(*body: Any, length: int = 9) -> Any:
    """Returns a classifier of sequences of three numbers, behind a first dense layer."""
    first = layers.Dense(4, name="first")
    return keras.Sequential([layers.Input((length, 3)), first, *body, layers.Flatten(), layers.Dense(CLASSES)])


def merged(parts: Callable[[Any], list[Any]], shape: tuple[int, ...] = (6,)) -> Any:
    """Returns a classifier of what `parts` makes of a hidden layer, side by side."""
    x = layers.Input(shape)
    h = layers.Dense(6, name="first")(x)
    return keras.Model(x, layers.Dense(CLASSES)(layers.Concatenate()([layers.Flatten()(h) for h in parts(h)])))


def perceptron(*tail: Any) -> Any:
    """Returns a hidden layer of 8, and behind it `tail`, or 5 outputs."""
    last = tail or (layers.Dense(CLASSES),)
    return keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="relu"), *last])


def words(*body: Any, mask: bool = False) -> Any:
    """Returns a classifier of four words: an embedding, whose gradient is sparse, and `body`."""
    first = layers.Embedding(6, 3, mask_zero=mask)
    head = [*body] if body else [layers.Flatten()]
    return keras.Sequential([layers.Input((4,), dtype="int32"), first, *head, layers.Dense(CLASSES)])
