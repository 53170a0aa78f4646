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


class Cell(layers.Layer):  # type: ignore[misc]
    """A recurrent cell with a fast and a slow state."""

    state_size = (3, 3)
    output_size = 3

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 3), name="kernel")
        self.recurrent = self.add_weight(shape=(3, 3), name="recurrent")

    def call(self, x: Any, states: Any) -> Any:
        fast, slow = states
        new = keras.ops.tanh(x @ self.kernel + fast @ self.recurrent)
        return new + slow, [new, 0.9 * slow + 0.1 * new]


class Started(layers.Layer):  # type: ignore[misc]
    """A recurrent layer that starts from a trained state."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = layers.GRU(3, return_sequences=True)

    def build(self, shape: Any) -> None:
        self.start = self.add_weight(shape=(1, 3), name="start", initializer="normal")
        self.recurrent.build(shape)

    def call(self, x: Any) -> Any:
        return self.recurrent(x, initial_state=keras.ops.tile(self.start, (keras.ops.shape(x)[0], 1)))


def passed_on() -> Any:
    """Return an encoder and a decoder that starts from its states."""
    x = layers.Input((3, 2))
    encoded, *states = layers.LSTM(3, return_sequences=True, return_state=True)(x)
    decoded = layers.LSTM(3, return_sequences=True, unroll=True)(encoded[:, ::-1], initial_state=states)
    both, *ends = layers.Bidirectional(layers.GRU(2, return_state=True), merge_mode="mul")(decoded)
    return keras.Model(x, layers.Dense(CLASSES)(layers.Concatenate()([both, *ends])))


def masked() -> Any:
    """Return a classifier of sequences in which zeros are masked."""
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
        Case(
            "states passed on",
            ("LSTM: return_state, initial_state, unroll", "Bidirectional: mul, its states"),
            passed_on,
        ),
        Case(
            "cells of your own",
            ("RNN: custom cell, go_backwards, trained initial state", "Bidirectional: average, custom backward layer"),
            lambda: sequences(
                layers.RNN(Cell(), return_sequences=True, go_backwards=True),
                Started(),
                layers.Bidirectional(layers.SimpleRNN(2, return_sequences=True), merge_mode="ave"),
                layers.Bidirectional(layers.SimpleRNN(2), backward_layer=layers.GRU(2, go_backwards=True)),
                length=3,
            ),
        ),
        Case(
            "recurrent convolutions",
            ("ConvLSTM1D", "TimeDistributed: convolution"),
            lambda: keras.Sequential(
                [
                    layers.Input((2, 6, 2)),
                    layers.TimeDistributed(layers.Conv1D(3, 2)),
                    layers.ConvLSTM1D(2, 2),
                    layers.Flatten(),
                    layers.Dense(CLASSES),
                ]
            ),
        ),
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
                "MultiHeadAttention: causal, cross-attention, dropout",
                "GroupQueryAttention",
                "Attention",
                "AdditiveAttention",
            ),
            encoder,
        ),
    ),
)
