"""The inputs of an export's terms, and the sum of the terms in a traced step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.interface import Subject
from odt_sim.export.keras.objective import Objective
from odt_sim.export.keras.own_steps import own_method
from odt_sim.export.keras.split_model import split_before_head
from odt_sim.export.terms.term import Sizes, Step, Term
from odt_sim.model.contract.manifest import TrainInput, task_of
from odt_sim.model.contract.names import ROW_INPUTS, is_one_of


@dataclass(frozen=True)
class AppliedTerms:
    """Terms adapted to the sizes of a model.

    Attributes:
        terms: The terms.
        inputs: The inputs of each term.
        body: The part of the model from its inputs to the embedding; None unless a term needs embeddings.
        head: The part from the embedding to the output; None unless a term needs embeddings.
        from_logits: Whether the model's output contains logits.
    """

    terms: tuple[Term, ...] = ()
    inputs: tuple[tuple[TrainInput, ...], ...] = ()
    body: keras.Model | None = None
    head: keras.Model | None = None
    from_logits: bool = True

    @property
    def declared(self) -> tuple[TrainInput, ...]:
        """The inputs that the terms add to a step, in order."""
        return tuple(each for own in self.inputs for each in own)

    def specs(self, batch_size: int | None) -> list[tf.TensorSpec]:
        """Return the arguments that the terms add to a traced step."""
        return [
            tf.TensorSpec([batch_size if size is None else size for size in each.shape], each.dtype, each.name)
            for each in self.declared
        ]

    def called(self, model: keras.Model, features: Any, *, embedded: bool = False) -> tuple[Any, tf.Tensor | None]:
        """Return the outputs of a model in training, and the embedding if terms need it, else None.

        Args:
            model: The model.
            features: The model's inputs.
            embedded: Whether the model is only the head, and the features are embeddings.
        """
        if self.body is None or self.head is None:
            return model(features, training=True), None
        embedding = features if embedded else self.body(features, training=True)
        return self.head(embedding, training=True), embedding

    def loss(
        self,
        model: keras.Model,
        data: tuple[Any, Any],
        outputs: tuple[Any, tf.Tensor | None],
        labels: tf.Tensor | None,
        flat: Sequence[tf.Tensor],
        sample_weight: tf.Tensor,
    ) -> tf.Tensor:
        """Return the sum of the terms, `[]`.

        Args:
            model: The model that is trained.
            data: The model's inputs and targets.
            outputs: The results of `called`.
            labels: The class of each example, if a term classifies.
            flat: The values for `specs`.
            sample_weight: The weight of each example; 0 for padding.
        """
        values = dict(zip((each.name for each in self.declared), flat, strict=True))
        output = keras.tree.flatten(outputs[0])[0]
        losses = []
        for own, inputs in zip(self.terms, self.inputs, strict=True):
            given: Mapping[str, tf.Tensor] = {each.name: values[each.name] for each in inputs}
            step = Step(model, *data, output, labels, outputs[1], given, self.from_logits, sample_weight)
            losses.append(_reduced(own.name, own.loss(step), sample_weight))
        return tf.add_n(losses)


def apply(terms: Sequence[Term], subject: Subject, objectives: Sequence[Objective]) -> AppliedTerms:
    """Return terms adapted to the sizes of a model.

    Raises:
        ExportError: A term does not fit the model, or two terms have an input of the same name.
    """
    if not terms:
        return AppliedTerms()
    model = subject.model
    if own_method(model):
        raise ExportError(f"terms: {type(model).__name__} has its own {own_method(model)}; compute the term there")
    shape = subject.interface.output_shapes(None)[0]
    classifies = len(objectives) == 1 and task_of(objectives[0].name) == "classification" and shape.rank == 2
    wrong = [each.name for each in terms if each.classifies and not (classifies and shape[-1] > 1)]
    if wrong:
        raise ExportError(
            f"terms: {wrong[0]} needs a model with one output [batch, classes] and a cross-entropy, found outputs of shape "
            f"{shape} and loss {objectives[0].name}; leave it out"
        )
    ignored = objectives[0].ignore_class
    if ignored is not None and any(each.classifies for each in terms):
        raise ExportError(
            f"terms: expected a loss that counts every label, found ignore_class={ignored}; leave it out, and these "
            "examples out of the data"
        )
    body, head = split_before_head(model, subject.groups) if any(each.embeds for each in terms) else (None, None)
    if body is not None and len(body.output.shape) != 2:
        raise ExportError(
            f"terms: expected embeddings [batch, features], found shape {body.output.shape}; leave them out"
        )
    sizes = Sizes(
        int(shape[-1]) if shape.rank and shape[-1] else 1, None if body is None else int(body.output.shape[-1])
    )
    applied = AppliedTerms(
        tuple(terms), tuple(each.inputs(sizes) for each in terms), body, head, objectives[0].from_logits
    )
    _check_names(applied.declared)
    return applied


def _check_names(inputs: Sequence[TrainInput]) -> None:
    names = [each.name for each in inputs]
    twice = [name for name in names if names.count(name) > 1 or is_one_of(name, ROW_INPUTS)]
    if twice:
        raise ExportError(
            f"terms: input {twice[0]!r} is declared twice, or is the name of an input or target; rename it"
        )


def _reduced(name: str, value: tf.Tensor, sample_weight: tf.Tensor) -> tf.Tensor:
    """Return the mean of per-example values over the real rows, as Keras reduces a loss; one number stays unchanged."""
    value = tf.cast(value, tf.float32)
    if value.shape.rank == 0:
        return value
    if value.shape.rank != 1:
        raise ExportError(f"terms: {name} returned shape {value.shape}, expected one number, or one for each example")
    return tf.reduce_mean(value * sample_weight)
