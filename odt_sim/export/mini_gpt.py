"""A small GPT that learns by low-rank adapters, for `conf/model/mini_gpt.yaml`."""

from typing import Any

import keras
from keras import layers

from odt_sim.export.keras.adapters import adapt


@keras.saving.register_keras_serializable(package="odt_sim")
class Positions(layers.Layer):  # type: ignore[misc]  # Keras has no types
    """A layer that adds a trained vector at each position."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Create the vectors, `[positions, width]`."""
        start = keras.initializers.RandomNormal(stddev=0.02)
        self.vectors = self.add_weight(shape=shape[1:], initializer=start, name="vectors")

    def call(self, x: Any) -> Any:
        """Return `[batch, positions, width]`."""
        return x + self.vectors


def mini_gpt(
    length: int, characters: int, width: int, heads: int, blocks: int, rank: int, weights: str | None = None
) -> keras.Model:
    """Return a causal transformer that predicts the next character at each position.

    Its output is `[batch, length, characters]` logits. It is a pre-normalized GPT-2 (Radford et al. 2019), with low-rank
    adapters as in LoRA, arXiv:2106.09685: `W + A B` with a frozen kernel W, and a B that starts at 0.

    Args:
        length: The number of characters per example.
        characters: The size of the alphabet.
        width: The width of a character's embedding; a multiple of `heads`.
        heads: The number of attention heads.
        blocks: The number of blocks.
        rank: The rank of the adapters on queries, values, the dense layers and the output; only the adapters are trained.
            0 trains all weights and adds no adapters.
        weights: A `.weights.h5` file that Keras saved for this model with rank 0; None initializes new weights.
    """
    x = layers.Input((length,), dtype="int32")
    h = Positions(name="positions")(layers.Embedding(characters, width, name="embedding")(x))
    adapted = []
    for i in range(blocks):
        attention = layers.MultiHeadAttention(heads, width // heads, use_bias=False, name=f"attention_{i}")
        inner, outer = layers.Dense(4 * width, "gelu", name=f"dense_{i}_a"), layers.Dense(width, name=f"dense_{i}_b")
        normal = layers.LayerNormalization(name=f"norm_{i}_a")(h)
        h = layers.Add()([h, attention(normal, normal, use_causal_mask=True)])
        h = layers.Add()([h, outer(inner(layers.LayerNormalization(name=f"norm_{i}_b")(h)))])
        adapted += [attention._query_dense, attention._value_dense, inner, outer]
    classifier = layers.Dense(characters, name="classifier")
    model = keras.Model(x, classifier(layers.LayerNormalization(name="norm")(h)), name="mini_gpt")
    if weights is not None:
        model.load_weights(weights)
    if rank:
        adapt(model.layers, [*adapted, classifier], rank)
    return model
