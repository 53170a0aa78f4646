"""Split a model before its head, to compute the features of a frozen body once and train the head on them."""

from collections.abc import Mapping

import keras

from odt_sim.errors import ExportError
from odt_sim.export.lowering import Trace
from odt_sim.export.parameters import leaf_layers, random_states_of
from odt_sim.export.signatures import handle

RANDOM = (keras.layers.Dropout, keras.layers.SpatialDropout1D, keras.layers.SpatialDropout2D)
ADVICE = "leave embed out, or name the last layers as the head"


def split_before_head(model: keras.Model, groups: Mapping[int, str]) -> tuple[keras.Model, keras.Model]:
    """Return the body, from the model's input to the embedding, and the head, from the embedding to the output.

    The embedding is the input of the head's first layer, or of a Dropout right before it.
    """
    first = next((layer for layer in model.layers if groups.get(id(layer)) == "head"), None)
    if first is None:
        raise ExportError(f"embed: the head of model {model.name!r} is inside a nested model; {ADVICE}")
    embedding = first.input
    while isinstance(embedding, keras.KerasTensor) and isinstance(embedding._keras_history.operation, RANDOM):
        embedding = embedding._keras_history.operation.input
    if not isinstance(embedding, keras.KerasTensor):
        raise ExportError(f"embed: layer {first.name!r} has several inputs; {ADVICE}")
    try:
        head = keras.Model(embedding, model.outputs[0], name=f"{model.name}_head")
    except ValueError as error:
        raise ExportError(f"embed: a path bypasses layer {first.name!r}; {ADVICE}") from error
    others = [layer.name for layer in leaf_layers(head) if groups.get(id(layer), "head") != "head"]
    if others:
        raise ExportError(f"embed: layer {others[0]!r} follows the head but is not part of it; {ADVICE}")
    return keras.Model(model.inputs[0], embedding, name=f"{model.name}_body"), head


def check_not_random(body: keras.Model, trained: Trace) -> None:
    """Check that the body draws no random masks while the head trains: its features would differ between steps."""
    generators = {handle(v) for v in random_states_of(body)}
    for op in trained.live_operations(weights=()):
        if trained.variables.get(op.name) in generators:
            name = next(layer.name for layer in leaf_layers(body) if _draws(layer))
            raise ExportError(
                f"embed: layer {name!r} of the body draws random masks, so its features differ from step to step; "
                "set its rate to 0"
            )


def _draws(layer: keras.layers.Layer) -> bool:
    return bool(layer.variables) and len(layer.variables) > len(layer.weights)
