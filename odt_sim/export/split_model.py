"""Cuts a model before its head: features of a body that is not trained are computed once, and the head trains on them."""

from collections.abc import Mapping

import keras

from odt_sim.errors import ExportError
from odt_sim.export.lowering import Trace
from odt_sim.export.parameters import leaf_layers, random_states_of
from odt_sim.export.signatures import handle

RANDOM = (keras.layers.Dropout, keras.layers.SpatialDropout1D, keras.layers.SpatialDropout2D)
ADVICE = "leave embed out, or name the last layers as the head"


def split_before_head(model: keras.Model, groups: Mapping[int, str]) -> tuple[keras.Model, keras.Model]:
    """Returns the body, from the model's input to the embedding, and the head, from there to the model's output.

    The embedding is the input of the first layer of the head, or of a Dropout that stands right before it.

    Args:
        model: A model of one input and one output.
        groups: The group of each of its layers.

    Raises:
        ExportError: The head's layers stand in a nested model, or others with weights behind them.
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
    """Checks that a step of the head draws no random masks in the body, whose features would then differ from step to step.

    Args:
        body: The body.
        trained: The trace of the body's answer in training, with all its layers frozen.

    Raises:
        ExportError: It draws some.
    """
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
