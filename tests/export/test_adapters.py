"""Low-rank adapters that are added to a Keras model."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from odt_sim.errors import ExportError
from odt_sim.export import add_adapters


def network() -> keras.Model:
    """Return a network with attention, normalization and a head."""
    x = layers.Input((4,), dtype="int32")
    h = layers.Embedding(5, 6, name="words")(x)
    h = layers.Add()([h, layers.MultiHeadAttention(2, 3, name="attention")(h, h)])
    h = layers.LayerNormalization(name="norm")(h)
    h = layers.Dense(6, name="inner")(layers.GlobalAveragePooling1D()(h))
    return keras.Model(x, layers.Dense(3, name="head")(h), name="network")


def test_adapters_and_the_head_train_and_answers_stay() -> None:
    model, x = network(), np.arange(8).reshape(2, 4) % 5
    before = model.predict(x, verbose=0)
    assert add_adapters(model, 2) is model
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)
    trained = [v.path.rpartition("/")[2] for v in model.trainable_weights]
    adapted = 6  # the embedding, query, key, value and output of the attention, and the inner layer
    assert sorted(set(trained)) == [
        *("bias", "kernel", "lora_embeddings_a", "lora_embeddings_b", "lora_kernel_a", "lora_kernel_b")
    ]
    assert len(trained) == 2 * adapted + 2


def test_head_is_chosen_by_name() -> None:
    model = add_adapters(network(), 2, head=["inner", "head"])
    assert [v.path for v in model.trainable_weights if "lora" not in v.path] == [
        *("inner/kernel", "inner/bias", "head/kernel", "head/bias")
    ]


def open_model() -> keras.Model:
    return keras.Sequential([layers.Dense(3)])


def alone() -> keras.Model:
    return keras.Sequential([layers.Input((6,)), layers.Dense(3)], name="alone")


@pytest.mark.parametrize(
    ("model", "rank", "message"),
    [
        (object, 2, "expected a built Keras model, found object"),
        (open_model, 2, "expected a built Keras model, found Sequential"),
        (network, 0, "expected a whole number of at least 1, found 0"),
        (alone, 2, "model 'alone' has no Dense, EinsumDense, Embedding or convolution below its head"),
        (lambda: add_adapters(network(), 2), 4, "layer 'words' of model 'network' already has adapters"),
    ],
)
def test_models_without_a_place_for_adapters_are_refused(model: Any, rank: int, message: str) -> None:
    with pytest.raises(ExportError, match=f"^lora_rank: {message}"):
        add_adapters(model(), rank)
