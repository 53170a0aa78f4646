"""The mask of an output with the loss `ctc`: frames that it leaves out are blanks."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from odt_sim.export.interface import graph_of
from odt_sim.export.losses import Objective
from odt_sim.export.own_steps import overrides_loss, own_method
from odt_sim.model.manifest import CTC

LEAST = -1e4
"""The logit of other classes in such frames, beside 0 of the blank: their probability is 0 in float32."""


class BlankFrames(keras.layers.Layer):  # type: ignore[misc]
    """Gives the blank a probability of 1 in masked frames, `[batch, frames, classes]`, and ends the mask."""

    def call(self, logits: Any, mask: Any = None) -> Any:
        """Return the logits, those of masked frames replaced."""
        blank = (1.0 - ops.one_hot(0, logits.shape[-1])) * LEAST
        return ops.where(ops.expand_dims(mask, -1), logits, blank)

    def compute_mask(self, logits: Any, previous_mask: Any = None) -> None:
        """Return no mask: all frames count."""


def with_blank_frames(model: keras.Model, objectives: Sequence[Objective]) -> keras.Model | None:
    """Return a model whose masked frames are blanks, with the layers and weights of another.

    A loss over all frames is then that over the frames which the mask leaves, exactly.

    Args:
        model: The model.
        objectives: The loss of each output, and whether the output has a mask.

    Returns:
        None if no output with the loss `ctc` has a mask, or the model's class has a call, a step or a loss of its own.
    """
    ends = [each.masked and each.name == CTC for each in objectives]
    if not any(ends) or own_method(model) or overrides_loss(model) or not getattr(model, "outputs", None):
        return None
    inputs, outputs = graph_of(model)
    pairs = zip(keras.tree.flatten(outputs), ends, strict=True)
    replaced = [BlankFrames()(value) if end else value for value, end in pairs]
    return keras.Model(inputs, keras.tree.pack_sequence_as(outputs, replaced), name=model.name)
