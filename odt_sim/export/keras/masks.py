"""Masks of outputs: masked frames of the loss `ctc` become blanks, and a mask that reaches no output is warned of."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from odt_sim.errors import ExportWarning
from odt_sim.export.keras.interface import Interface, graph_of
from odt_sim.export.keras.objective import Objective
from odt_sim.export.keras.own_steps import overrides_loss, own_method
from odt_sim.export.keras.parameters import all_layers
from odt_sim.model.contract.manifest import CTC

LEAST = -1e4
"""The logit of the other classes in masked frames; the blank's logit is 0, so their float32 probability is 0."""


class BlankFrames(keras.layers.Layer):  # type: ignore[misc]
    """A layer that sets the blank's probability to 1 in masked frames, `[batch, frames, classes]`, and drops the mask."""

    def call(self, logits: Any, mask: Any = None) -> Any:
        """Return the logits, with those of masked frames replaced."""
        blank = (1.0 - ops.one_hot(0, logits.shape[-1])) * LEAST
        return ops.where(ops.expand_dims(mask, -1), logits, blank)

    def compute_mask(self, logits: Any, previous_mask: Any = None) -> None:
        """Return no mask, because all frames count."""


def with_blank_frames(model: keras.Model, objectives: Sequence[Objective]) -> keras.Model | None:
    """Return a model with the layers and weights of another, in whose outputs masked frames are blanks.

    The loss over all frames then equals the loss over the unmasked frames exactly.

    Args:
        model: The model.
        objectives: The loss of each output, and whether the output has a mask.

    Returns:
        The model; None if no output with the loss `ctc` has a mask, or if the model is not a graph of layers or overrides
        the training step or the loss.
    """
    ends = [each.masked and each.name == CTC for each in objectives]
    if not any(ends) or own_method(model) or overrides_loss(model) or not getattr(model, "outputs", None):
        return None
    inputs, outputs = graph_of(model)
    pairs = zip(keras.tree.flatten(outputs), ends, strict=True)
    replaced = [BlankFrames()(value) if end else value for value, end in pairs]
    return keras.Model(inputs, keras.tree.pack_sequence_as(outputs, replaced), name=model.name)


def warn_of_lost_masks(model: keras.Model, objectives: Sequence[Objective], interface: Interface) -> None:
    """Warn of the first output that keeps the positions of a masked input but not its mask."""
    masking = next((layer for layer in all_layers(model) if _masks(layer)), None)
    lengths = {tensor.shape[1] for tensor in interface.flat_inputs if len(tensor.shape) > 1}
    for objective, output, name in zip(objectives, interface.flat_outputs, interface.output_names, strict=True):
        # A user's loss has no name, and may ignore some positions itself.
        counts_all = objective.name is not None and objective.rank > 1 and not objective.leaves_out
        if masking and counts_all and output.shape[1] in lengths and _keeps_positions(output):
            warnings.warn(
                f"model {model.name!r}: the mask of layer {masking.name!r} does not reach the output{name and f' {name!r}'}, "
                "so padding counts in loss and metrics, as in Keras; join layers with Add() instead of +, set "
                "supports_masking in your own layers, or give the loss an ignore_class: see docs/how-to/tasks.md",
                ExportWarning,
                stacklevel=4,
            )
            return


def _keeps_positions(output: Any) -> bool:
    """Return whether a masking layer leads to an output only through tensors of the output's length.

    Otherwise, the length may come from another input, or from upsampling after pooling. For a model that is not a graph of
    layers, the answer is True, because it may keep the positions.
    """
    if not hasattr(output, "_keras_history"):
        return True
    pending, seen = [output], set[int]()
    while pending:
        tensor = pending.pop()
        if id(tensor) in seen or len(tensor.shape) < 2 or tensor.shape[1] != output.shape[1]:
            continue
        seen.add(id(tensor))
        made, node, _ = tensor._keras_history
        if isinstance(made, keras.layers.Layer) and any(map(_masks, all_layers(made))):
            return True
        pending += made._inbound_nodes[node].input_tensors
    return False


def _masks(layer: keras.layers.Layer) -> bool:
    return isinstance(layer, keras.layers.Masking) or bool(getattr(layer, "mask_zero", False))
