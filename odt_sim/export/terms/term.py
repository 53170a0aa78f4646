"""A term of the training loss: its inputs and its formula."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.model.contract.manifest import TrainInput


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model that determine the shapes of terms' inputs.

    Attributes:
        classes: The last size of the model's output.
        features: The size of an embedding, the input of the head; None unless a term needs embeddings.
    """

    classes: int
    features: int | None = None


@dataclass(frozen=True)
class Step:
    """The values of a training step from which a term is computed.

    Attributes:
        model: The Keras model; in the signature `head_train`, only its head.
        x: The model's inputs, in the model's structure.
        y: The targets, in the structure of the model's outputs.
        output: The model's output in training, `[batch, ...]`.
        labels: The class of each example `[batch]`, int32; None unless a term needs a model that classifies.
        embedding: The input of the head, `[batch, features]`; None unless a term needs it.
        inputs: The term's inputs by name.
        from_logits: Whether `output` contains logits.
        sample_weight: The weight of each example `[batch]`; 0 for padding, with a mean of 1 over the batch.
    """

    model: keras.Model
    x: Any
    y: Any
    output: tf.Tensor
    labels: tf.Tensor | None
    embedding: tf.Tensor | None
    inputs: Mapping[str, tf.Tensor]
    from_logits: bool
    sample_weight: tf.Tensor

    @property
    def logits(self) -> tf.Tensor:
        """The output as logits; probabilities are converted to their logarithms."""
        return self.output if self.from_logits else tf.math.log(tf.maximum(self.output, 1e-7))


@dataclass(frozen=True)
class Term:
    """A term that is added to the loss of every training step.

    Attributes:
        name: The term's name, for messages.
        loss: Returns the term's value for each example, `[batch]`, which is averaged over the batch like the loss, or one
            number for the batch.
        inputs: Returns the inputs that the term adds to `train`. The inputs' defaults make a shipped term zero.
        classifies: Whether the term needs a model that classifies, with one output `[batch, classes]`.
        embeds: Whether the term needs the input of the head.
    """

    name: str
    loss: Callable[[Step], tf.Tensor]
    inputs: Callable[[Sizes], tuple[TrainInput, ...]] = field(default=lambda sizes: ())
    classifies: bool = True
    embeds: bool = False


def term(*inputs: TrainInput) -> Callable[[Callable[..., tf.Tensor]], Callable[..., tf.Tensor]]:
    """Declare the inputs of a term of your own, a function `(model, x, y, inputs) -> loss`.

    The function returns a value for each example, `[batch]`, or one number. It may call the model again.

    ```python
    @term(TrainInput("anchor", (None, 10)), TrainInput("pull"))
    def to_anchor(model, x, y, inputs):
        return inputs["pull"] * tf.reduce_sum((model(x, training=True) - inputs["anchor"]) ** 2, -1)
    ```

    Args:
        inputs: The inputs that the function reads from `inputs`; a first size of None means one value per example.
    """

    def declared(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        function.train_inputs = inputs  # type: ignore[attr-defined]
        return function

    return declared


def own_term(function: Callable[..., tf.Tensor]) -> Term:
    """Return the term for a user's function.

    Raises:
        ExportError: The function was not declared by `term`.
    """
    name = getattr(function, "__name__", type(function).__name__)
    inputs = getattr(function, "train_inputs", None)
    if inputs is None:
        raise ExportError(f"terms: {name} declares no inputs; decorate it with odt_sim.export.terms.term(...)")
    return Term(
        name,
        lambda step: function(step.model, step.x, step.y, step.inputs),
        lambda sizes: tuple(inputs),
        classifies=False,
    )
