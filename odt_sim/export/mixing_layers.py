"""Warn of layers by which an example's features or loss depend on the other examples of its batch."""

import warnings

import keras
import tensorflow as tf

from odt_sim.errors import ExportWarning
from odt_sim.export.parameters import all_layers

LEAST_DECIBELS = 200.0
"""The largest range of sounds in -1..1 above `min_power`, 1e-10: a smaller `top_db` cuts quiet passages."""


def warn_of_mixing_layers(model: keras.Model) -> None:
    """Warn of each spectrogram with a floor relative to the loudest passage of a batch, and of each MixUp and CutMix."""
    for layer in all_layers(model):
        if advice := _advice(layer):
            warnings.warn(f"layer {layer.name!r}: {advice}", ExportWarning, stacklevel=4)


def warn_of_batch_losses(model: keras.Model, batch_size: int | None) -> None:
    """Warn of each layer that called `add_loss` in the traced training step, if partial batches are padded.

    Activity regularizers add their loss in the same way, but ignore padding, as do losses with a value per example.
    """
    for layer in layers_with_losses(model, batch_size) if batch_size is not None else ():
        warnings.warn(
            f"layer {layer.name!r}: its add_loss counts the rows that pad a partial batch, so that such a step differs "
            "from Keras; export with batch_size=None (model.batch_size=null), which needs no padding",
            ExportWarning,
            stacklevel=4,
        )


def counts_padding(model: keras.Model, batch_size: int | None) -> bool:
    """Return whether a model whose training step was just traced is warned of because it counts padding rows."""
    mixes = any(isinstance(layer, (keras.layers.MixUp, keras.layers.CutMix)) for layer in all_layers(model))
    return mixes or bool(layers_with_losses(model, batch_size))


def layers_with_losses(model: keras.Model, batch_size: int | None) -> list[keras.layers.Layer]:
    """Return the layers that called `add_loss` in the latest trace, with one number for the examples of a batch.

    Activity regularizers, which Keras divides by the rows and adds in the same way, ignore padding.
    """
    return [
        layer
        for layer in all_layers(model)
        if any(
            not (getattr(layer, "activity_regularizer", None) and loss.op.type == "DivNoNan")
            and loss.shape[:1].as_list() != [batch_size]
            and _has_examples(loss)
            for loss in layer._losses
        )
    ]


def _has_examples(loss: tf.Tensor) -> bool:
    """Return whether a loss depends on the arguments of its trace; a penalty of weights does not."""
    if not tf.is_symbolic_tensor(loss):  # from a call before the trace
        return False
    captured = {placeholder.op.name for _, placeholder in loss.graph.captures}
    pending, reached = [loss.op], set[str]()
    while pending:
        op = pending.pop()
        if op.name not in reached:
            reached.add(op.name)
            pending += [tensor.op for tensor in op.inputs]
    return any(op.name in reached - captured for op in loss.graph.get_operations() if op.type == "Placeholder")


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
