"""Split a model before its head, to compute the features of a frozen body once and train the head on them."""

from collections.abc import Mapping

import keras

from odt_sim.errors import ExportError
from odt_sim.export.emit.signatures import handle
from odt_sim.export.keras.interface import interface_of
from odt_sim.export.keras.parameters import leaf_layers, random_states_of
from odt_sim.export.keras.precision import with_float32_inputs
from odt_sim.export.lowering import Trace
from odt_sim.export.torch.module import Module, split_module
from odt_sim.export.torch.nodes import ADVICE

RANDOM = (
    keras.layers.AlphaDropout,
    keras.layers.Dropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
)
STRENGTHS = ("rate", "stddev")  # with 0, a random layer draws no numbers


def split_before_head(model: keras.Model, groups: Mapping[int, str]) -> tuple[keras.Model, keras.Model]:
    """Return the body, from the model's inputs to the embedding, and the head, from the embedding to the outputs.

    The embedding is the input of the head's first layers, or of the random layers directly before them.
    """
    if any(isinstance(layer, Module) for layer in model.layers):
        return split_module(model, [layer for layer in leaf_layers(model) if groups.get(id(layer)) == "head"])
    first = _first_of_head(model, groups)
    embedding = _embedding(first[0])
    if any(_embedding(layer) is not embedding for layer in first):
        names = ", ".join(repr(layer.name) for layer in first)
        raise ExportError(f"embed: the layers {names} of the head take different inputs; {ADVICE}")
    try:
        head = with_float32_inputs(keras.Model(embedding, interface_of(model).outputs, name=f"{model.name}_head"))
    except ValueError as error:
        raise ExportError(f"embed: a path bypasses layer {first[0].name!r}; {ADVICE}") from error
    others = [layer.name for layer in leaf_layers(head) if groups.get(id(layer), "head") != "head"]
    if others:
        raise ExportError(f"embed: layer {others[0]!r} follows the head but is not part of it; {ADVICE}")
    return keras.Model(interface_of(model).inputs, embedding, name=f"{model.name}_body"), head


def _first_of_head(model: keras.Model, groups: Mapping[int, str]) -> list[keras.layers.Layer]:
    """Return the head's first layer; with several outputs, all of its layers that do not follow another layer of it."""
    layers = [layer for layer in model.layers if groups.get(id(layer)) == "head"]
    if not layers:
        raise ExportError(f"embed: the head of model {model.name!r} is inside a nested model; {ADVICE}")
    if len(model.outputs) == 1:
        return layers[:1]
    inside = {id(tensor) for layer in layers for tensor in keras.tree.flatten(layer.output)}
    return [layer for layer in layers if not any(id(t) in inside for t in keras.tree.flatten(layer.input))]


def _embedding(layer: keras.layers.Layer) -> keras.KerasTensor:
    """Return the input of a layer of the head, before any random layers such as Dropout."""
    embedding = layer.input
    while isinstance(embedding, keras.KerasTensor) and isinstance(embedding._keras_history.operation, RANDOM):
        embedding = embedding._keras_history.operation.input
    if not isinstance(embedding, keras.KerasTensor):
        raise ExportError(f"embed: layer {layer.name!r} has several inputs; {ADVICE}")
    return embedding


def check_not_random(body: keras.Model, trained: Trace) -> None:
    """Check that the body draws no random numbers while the head trains, because features would differ between steps."""
    generators = {handle(v) for v in random_states_of(body)}
    for op in trained.live_operations(weights=()):
        if trained.variables.get(op.name) in generators:
            if any(isinstance(layer, Module) for layer in body.layers):
                raise ExportError(
                    "embed: the body draws random numbers in training mode, such as by Dropout; its features differ "
                    "from step to step, so call train() on the module and then eval() on its body, or leave embed out"
                )
            layers = [layer for layer in leaf_layers(body) if _draws(layer)]
            strengths = [f"layer.{name}" for name in STRENGTHS if any(hasattr(layer, name) for layer in layers)]
            advice = f"set {' or '.join(strengths)} = 0 of each, or leave embed out" if strengths else "leave embed out"
            raise ExportError(
                "embed: the body draws random numbers, also with training=False in its call, in "
                f"{', '.join(layer.name for layer in layers)}; its features differ from step to step, so {advice}"
            )


def _draws(layer: keras.layers.Layer) -> bool:
    strength = next((getattr(layer, name) for name in STRENGTHS if hasattr(layer, name)), None)
    return len(layer.variables) > len(layer.weights) and strength != 0
