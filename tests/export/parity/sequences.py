"""Recurrent layers and attention."""

from typing import Any

import keras
from keras import layers

from parity.case import CLASSES, Case, Family, sequences, words


def characters() -> Any:
    """Return a model that predicts the next character at each position."""
    x = layers.Input((5,), dtype="int32")
    h = layers.LSTM(4, return_sequences=True)(layers.Embedding(6, 3)(x))
    return keras.Model(x, layers.Dense(6)(h))


def masked() -> Any:
    """Return a classifier of sequences that masks zeros."""
    kinds = [layers.Masking(), layers.Bidirectional(layers.GRU(3), merge_mode="sum"), layers.Dense(CLASSES)]
    return keras.Sequential([layers.Input((3, 2)), *kinds])


def encoder() -> Any:
    """Return a transformer encoder block with further attention layers."""
    x = layers.Input((6, 8))
    h = layers.Dense(8, name="first")(x)
    attended = layers.MultiHeadAttention(2, 4, use_bias=False)(h, h, use_causal_mask=True)
    h = layers.LayerNormalization()(layers.Add()([h, attended]))
    shorter = layers.MaxPooling1D(2)(h)
    crossed = layers.MultiHeadAttention(2, 3, value_dim=2, dropout=0.2, use_bias=False)(h, shorter)
    simple = [layers.Attention(use_scale=True)([h, h]), layers.AdditiveAttention()([h, h])]
    h = layers.Concatenate()([h, crossed, layers.GroupQueryAttention(4, 4, 2, use_bias=False)(h, h), *simple])
    return keras.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(h)))


RECURRENT = Family(
    "Recurrent layers over a fixed length",
    "parity/sequences.py",
    (
        Case(
            "recurrent layers",
            ("SimpleRNN", "Bidirectional", "LSTM", "GRU: backwards, reset before"),
            lambda: sequences(
                layers.SimpleRNN(4, return_sequences=True),
                layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
                layers.GRU(4, go_backwards=True, reset_after=False),
                length=4,
            ),
        ),
        Case(
            "recurrent layers of cells, with dropout",
            ("GRU: reset after", "RNN: stacked cells", "SimpleRNN: dropout, recurrent dropout"),
            lambda: sequences(
                layers.GRU(4, return_sequences=True),
                layers.RNN([layers.LSTMCell(3), layers.GRUCell(4)], return_sequences=True),
                layers.SimpleRNN(3, dropout=0.2, recurrent_dropout=0.3),
                length=2,
            ),
        ),
        Case("a loss at each position", ("LSTM: a loss at each position",), characters),
        Case("masked values", ("Masking", "Bidirectional: sum, masked"), masked),
        Case("masked positions", ("LSTM: masked", "Embedding: masked"), lambda: words(layers.LSTM(4), mask=True)),
    ),
)

ATTENTION = Family(
    "Attention",
    "parity/sequences.py",
    (
        Case(
            "attention",
            (
                "MultiHeadAttention: causal, of another sequence, dropout",
                "GroupQueryAttention",
                "Attention",
                "AdditiveAttention",
            ),
            encoder,
        ),
    ),
)
