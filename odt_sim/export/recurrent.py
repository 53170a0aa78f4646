"""Recurrent layers over a fixed length: traced step by step, because TFLite has no kernels for TensorFlow's loops."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras

from odt_sim.export.parameters import all_layers


@contextmanager
def unrolled(model: keras.Model) -> Iterator[None]:
    """Has a model's recurrent layers repeat their steps in the graph while it is traced; afterwards they are as before."""
    layers = [layer for layer in all_layers(model) if isinstance(layer, keras.layers.RNN)]
    before = [layer.unroll for layer in layers]
    for layer in layers:
        layer.unroll = True
    try:
        yield
    finally:
        for layer, unroll in zip(layers, before, strict=True):
            layer.unroll = unroll
