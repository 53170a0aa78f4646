"""Small networks that change state in inference as well."""

from typing import Any

import keras
from keras import layers


class Sample(layers.Layer):  # type: ignore[misc]
    """A layer that adds noise, also in inference, as the latent variables of a VAE."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seed = keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed)


class Count(layers.Layer):  # type: ignore[misc]
    """A layer that divides by the number of its calls."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        return x / self.calls


def build(counts: bool) -> keras.Model:
    """Return a network from 6 features to 3 classes that samples, or that counts its calls."""
    changing = Count() if counts else Sample()
    return keras.Sequential([layers.Input((6,)), layers.Dense(5), changing, layers.Dense(3)], name="sampling")
