"""Masks of outputs with the loss `ctc`: masked frames become blanks."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from odt_sim.export.interface import graph_of
from odt_sim.export.objective import Objective
from odt_sim.export.own_steps import overrides_loss, own_method
from odt_sim.model.manifest import CTC

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
