"""Check a Keras model, and warn of layers by which examples of a batch depend on each other."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export import OTHER_BACKEND
from odt_sim.export.keras.interface import Interface, Subject
from odt_sim.export.keras.own_steps import added_losses, own_method
from odt_sim.export.keras.parameters import all_layers, leaf_layers
from odt_sim.export.keras.precision import MIXED, quantized, warn_of_mixed
from odt_sim.export.lowering import Trace
from odt_sim.export.sources import FROM_KERAS_2
from odt_sim.model.contract.manifest import GROUPS

ONLY_FLEX = (
    keras.layers.RandAugment,
    keras.layers.AugMix,
    keras.layers.RandomPosterization,
    keras.layers.RandomElasticTransform,
)
"""Augmentations that built-in ops do not compute."""

FLAVOURS = ("builtin", "flex")


def check_model(model: Any, batch_size: int | None) -> None:
    """Check Keras' backend, a model, its layers and the batch size."""
    if keras.backend.backend() != "tensorflow":
        raise ExportError(OTHER_BACKEND.format(found=keras.backend.backend()))
    if any(base.__module__.startswith("tf_keras.") for base in type(model).__mro__):
        raise ExportError(f"model: expected a model of Keras 3, found one of tf_keras, Keras 2; {FROM_KERAS_2}")
    if not isinstance(model, keras.Model):
        raise ExportError(
            f"model: expected a built Keras model, or the path of one, found {type(model).__name__}; see docs/export.md"
        )
    check_batch_size(batch_size)
    for layer in leaf_layers(model):
        _check_layer(layer)
    quantized(model)
    warn_of_mixed(model)


def check_interface(model: keras.Model, interface: Interface) -> None:
    """Check a built model's inputs, and that it has weights to train."""
    where = f"model {model.name!r}"
    for tensor, name in zip(interface.flat_inputs, interface.input_names, strict=True):
        _check_input(tensor, where, f" {name!r}" if name else "")
    if not model.trainable_weights:
        raise ExportError(f"{where}: nothing to train; add a layer with trainable weights")


def check_captures(traces: Mapping[str, Trace]) -> None:
    """Check that no step reads a symbolic tensor that a layer stored while Keras built it."""
    for name, trace in traces.items():
        kept = [outer for outer, _ in trace.concrete.graph.captures if not hasattr(outer, "numpy")]
        if kept:
            raise ExportError(
                f"{trace.where(kept[0].op)}: `{name}` reads a tensor that a layer kept from when Keras built it, "
                "such as the factor of a regularizer that `build` created from the name 'l1'; create it in "
                "`__init__`, such as with keras.regularizers.L1(0.01)"
            )


def check_batch_size(batch_size: int | None) -> None:
    """Check that a batch size is None or a whole number from 1 to 2^31 - 1."""
    whole = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    if batch_size is not None and (not whole or not 1 <= batch_size < 2**31):
        raise ExportError(
            f"batch_size: expected a whole number from 1 to 2^31 - 1, or null for any, found {batch_size!r}"
        )


def _check_input(tensor: keras.KerasTensor, where: str, name: str) -> None:
    if tensor.dtype == "string":
        advice = "apply StringLookup or TextVectorization before the model"
        raise ExportError(f"{where}: expected an input{name} of numbers, found strings; {advice}")
    if None in tensor.shape[1:]:
        found = tensor.shape[1:]
        raise ExportError(
            f"{where}: expected an input{name} of fixed shape, found {found}; give Input the full shape, or pass a "
            "batch of that shape as example=x, as for models from KerasHub"
        )


def check_flavour(model: keras.Model, flavour: str) -> None:
    """Check the flavour of the exported ops, and that it has the ops of each layer."""
    if flavour not in FLAVOURS:
        raise ExportError(f"flavour: expected {' or '.join(FLAVOURS)}, found {flavour!r}")
    for layer in all_layers(model) if flavour == "builtin" else ():
        if isinstance(layer, ONLY_FLEX):
            raise ExportError(
                f"layer {layer.name!r}: {type(layer).__name__} has no built-in ops; augment the data with it, before the "
                "model, or leave it out"
            )
    for layer in leaf_layers(model) if flavour == "flex" else ():
        if getattr(layer, "groups", 1) > 1 and hasattr(layer, "kernel_size"):
            raise ExportError(
                f"layer {layer.name!r}: Flex ops do not train grouped convolutions; use flavour='builtin'"
            )


def check_groups(subject: Subject, wanted: Sequence[str]) -> None:
    """Check that each group, or combination of groups joined by `_`, has trainable weights."""
    if isinstance(wanted, str):
        raise ExportError(f"train_groups: expected a list of groups, found {wanted!r}; write [{wanted!r}]")
    for name in wanted:
        parts = str(name).split("_")
        unknown = [part for part in parts if part not in GROUPS]
        if unknown:
            raise ExportError(f"train_groups: expected {', '.join(GROUPS)}, or several joined by _, found {name!r}")
        if not any(layer.trainable_weights for layer in subject.layers(parts)):
            raise ExportError(
                f"train_groups: model {subject.model.name!r} has nothing to train in {name!r}; leave it out"
            )


def check_embed(model: keras.Model) -> None:
    """Check that embeddings can replace the inputs in training steps."""
    if method := own_method(model):
        raise ExportError(f"embed: {type(model).__name__} has its own {method}, which takes x; leave embed out")


def _check_layer(layer: keras.layers.Layer) -> None:
    where = f"layer {layer.name!r}"
    if getattr(layer, "stateful", False):
        raise ExportError(f"{where}: keeps its state between batches; set stateful=False")
    computes = layer.compute_dtype
    if keras.backend.is_float_dtype(computes) and computes != "float32" and layer.dtype_policy.name not in MIXED:
        raise ExportError(f"{where}: expected compute dtype float32, found {layer.compute_dtype}; set its dtype")


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
    """Return the layers that called `add_loss` in the latest trace, with one number for the examples of a batch."""
    return [
        layer
        for layer in all_layers(model)
        if any(loss.shape[:1].as_list() != [batch_size] and _has_examples(loss) for loss in added_losses(layer))
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
