"""Warn of Keras layers that make an example's features depend on the other examples of its batch."""

import warnings

import keras

from odt_sim.errors import ExportWarning
from odt_sim.export.parameters import all_layers

LEAST_DECIBELS = 200.0
"""The largest range of sounds in -1..1 above `min_power`, 1e-10: a smaller `top_db` cuts quiet passages."""


def warn_of_mixing_layers(model: keras.Model) -> None:
    """Warn of each spectrogram with a floor relative to the loudest passage of a batch, and of each MixUp and CutMix."""
    for layer in all_layers(model):
        if advice := _advice(layer):
            warnings.warn(f"layer {layer.name!r}: {advice}", ExportWarning, stacklevel=4)


def _advice(layer: keras.layers.Layer) -> str | None:
    """Return what a layer mixes, with advice; None if the layer processes each example separately."""
    layers = keras.layers
    if isinstance(layer, layers.MelSpectrogram) and layer.power_to_db and layer.top_db < LEAST_DECIBELS:
        return (
            f"its floor is top_db={layer.top_db:g} below the loudest value of the whole batch, as in Keras, so an "
            "example's features depend on the other examples of its batch, and a phone's results may differ from "
            "evaluation; set "
            f"top_db={LEAST_DECIBELS:g}, which cuts nothing"
        )
    if isinstance(layer, (layers.MixUp, layers.CutMix)):
        return (
            "mixes the inputs of a batch but not their labels, as in Keras, and mixes in the padding of a partial "
            "batch; leave it out, and mix both in a strategy's local, with device.train_batch"
        )
    return None
