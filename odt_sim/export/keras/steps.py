"""Trace a Keras model: inference, training steps for all or some of its weights, and an optimizer's schedule and end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.emit.signatures import handle
from odt_sim.export.keras.interface import Subject, reason
from odt_sim.export.keras.optimizers import Schedule
from odt_sim.export.keras.own_steps import (
    WEIGHT,
    batch_losses,
    check_weighted,
    compiled_as,
    example_losses,
    gradients_by,
    overrides_loss,
    own_method,
    step_loss,
    summed,
    with_added,
)
from odt_sim.export.keras.padding_rows import (
    Call,
    calls_of,
    has_own_code,
    normalizations,
    other_count,
    recorded,
    regularized,
    without_padding,
)
from odt_sim.export.keras.parameters import all_layers, leaf_layers
from odt_sim.export.keras.random_batches import same_mean
from odt_sim.export.keras.training import Training, fixed_shapes
from odt_sim.export.lowering import Trace
from odt_sim.export.trace.inlining import inlined
from odt_sim.export.trace.tracing import traced, unrolled
from odt_sim.model.contract.names import full


def trace_infer(
    subject: Subject, *, x: str = "x", output: str = "logits", training: bool = False, masks_too: bool = False
) -> Trace:
    """Trace `infer(x) -> logits`, optionally with other names; `training` is Keras' argument.

    With `masks_too`, it also returns the `mask` of each output that has one, int32, with 1 for positions that count.
    """
    model, interface = subject.model, subject.interface

    def infer(*flat: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = keras.tree.flatten(model(interface.arguments(flat), training=training))
        named = dict(zip(interface.output_names, outputs, strict=True))
        masks = {full("mask", name): getattr(value, "_keras_mask", None) for name, value in named.items()}
        counted = {name: tf.cast(mask, tf.int32) for name, mask in masks.items() if mask is not None}
        return {full(output, name): value for name, value in named.items()} | (counted if masks_too else {})

    with unrolled(model):
        return inlined(traced(infer, subject.specs(x), names_of(model)))


def trace_losses(subject: Subject, training: Training) -> Trace:
    """Trace `loss(logits, y, mask) -> losses`: each example's loss, `[batch]`, without regularization.

    If the model's class computes the loss, the function takes `x` instead of masks.
    """
    interface = subject.interface
    shapes = dict(zip(interface.output_names, interface.output_shapes(subject.batch_size), strict=True))
    arguments = [tf.TensorSpec(shape, name=full("logits", name)) for name, shape in shapes.items()]
    count = len(arguments)
    masked = [name for name, objective in zip(shapes, training.objectives, strict=True) if objective.masked]
    masks = [tf.TensorSpec(shapes[name][:2], tf.int32, name=full("mask", name)) for name in masked]

    def loss(*flat: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs, targets, others = flat[:count], flat[count : 2 * count], flat[2 * count :]
        given = dict(zip(masked, others, strict=True))
        losses = training.losses(targets, outputs, [given.get(name) for name in shapes])
        named = {full("losses", name): own for name, own in zip(interface.output_names, losses, strict=True)}
        return {**named, "losses": training.total(losses)}

    arguments += training.targets
    if overrides_loss(subject.model):
        return _trace_own_losses(subject, training, [*arguments, *subject.specs()])
    return inlined(traced(loss, [*arguments, *masks], names_of(subject.model)))


def _trace_own_losses(subject: Subject, training: Training, arguments: Sequence[tf.TensorSpec]) -> Trace:
    """Trace the model's `compute_loss` of each example; of the whole batch if it depends on the others of any number."""
    model = subject.model

    def trace(losses_of: Callable[..., tf.Tensor]) -> Trace:
        def loss(*flat: tf.Tensor) -> dict[str, tf.Tensor]:
            count = len(training.targets)
            y = None if training.without_targets else flat[count : 2 * count]
            return {"losses": losses_of(model, subject.interface, flat[2 * count :], y, flat[:count])}

        return inlined(traced(loss, arguments, names_of(model)))

    with unrolled(model), compiled_as(model, training.optimizer, partial(training.of_batch, model)):
        if subject.batch_size is not None:
            return trace(example_losses)
        whole = trace(batch_losses)
        try:
            each = trace(example_losses)
        except ExportError:  # such as the distances between rows, of one row
            return whole
        return each if same_mean(each.concrete, whole.concrete) else whole


def trace_train(subject: Subject, training: Training, *, x: str = "x") -> Trace:
    """Trace `train(x, y, sample_weight) -> loss`, which changes the trainable weights.

    Terms add their inputs, and offsets add `mu`. If the training names gradients, the step also returns them.
    """
    model, step = subject.model, Step(subject, training, x)
    method, calls = own_method(model), _recorded_calls(step)

    def train(*flat: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = step.unpacked(flat)
        with without_padding(model, batch.sample_weight, calls):
            return step.run(batch)

    with _traceable(model, training):
        trace = traced(train, step.arguments, names_of(model))
        if not method:
            return inlined(trace)
        check_weighted(trace, model, [handle(v) for v in model.trainable_variables], subject.batch_size)
        return inlined(trace, temporary={handle(v): v.value for m in model.metrics for v in m.variables})


@contextmanager
def _traceable(model: keras.Model, training: Training) -> Iterator[None]:
    """Prepare a model for the trace of its training step."""
    with unrolled(model), fixed_shapes():
        if not own_method(model):
            yield
            return
        with compiled_as(model, training.optimizer, partial(training.of_batch, model)):
            yield


class Batch(NamedTuple):
    """The tensors of a step: inputs, targets and sample weights, the inputs of terms, and `mu` if there are offsets."""

    features: list[tf.Tensor]
    labels: list[tf.Tensor]
    sample_weight: tf.Tensor
    further: list[tf.Tensor]
    mu: tf.Tensor | None


@dataclass(frozen=True)
class Step:
    """A training step.

    Attributes:
        subject: The model.
        training: The losses and the optimizer.
        x: The name of the model's inputs.
    """

    subject: Subject
    training: Training
    x: str

    @cached_property
    def _specs(self) -> list[list[tf.TensorSpec]]:
        """The specs of the tensors of a `Batch`."""
        count, targets = self.subject.batch_size, self.training.targets
        return [
            self.subject.specs(self.x),
            [tf.TensorSpec([count, *spec.shape[1:]], spec.dtype, spec.name) for spec in targets],
            [tf.TensorSpec([count], name="sample_weight")],
            self.training.terms.specs(count),
            [tf.TensorSpec([], name="mu")] if self.training.offsets else [],
        ]

    @property
    def arguments(self) -> list[tf.TensorSpec]:
        """The specs of the flat tensors of a batch."""
        return [spec for part in self._specs for spec in part]

    def unpacked(self, flat: Sequence[tf.Tensor]) -> Batch:
        """Return flat tensors as a batch."""
        left = iter(flat)
        features, labels, [sample_weight], further, mu = [[next(left) for _ in part] for part in self._specs]
        return Batch(features, labels, sample_weight, further, mu[0] if mu else None)

    def run(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Change the weights by the gradients of a batch, and return its loss."""
        model, training = self.subject.model, self.training
        x = self.subject.interface.arguments(batch.features)
        y = None if training.without_targets else self.subject.interface.returned(batch.labels)
        if own_method(model) == "train_step":
            return _own_step(model, training, x, y, batch)
        with tf.GradientTape() as tape:
            loss, total = self._losses(x, y, batch)
            scaled = training.optimizer.scale_loss(total)
        variables = model.trainable_variables
        pairs = zip(tape.gradient(scaled, variables), variables, strict=True)
        gradients = [(g, v) for g, v in pairs if g is not None]
        named = training.named_gradients(gradients)
        training.optimizer.apply_gradients([(training.gradient(g, v, batch.mu), v) for g, v in gradients])
        return {**named, "loss": loss}

    def _losses(self, x: Any, y: Any, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the loss of a batch to report, and the one to minimize."""
        model, training, sample_weight = self.subject.model, self.training, batch.sample_weight
        called = outputs, _ = training.terms.called(model, x, embedded=self.x == "embedding")
        if own_method(model):
            values = own_loss(model, x, y, outputs, sample_weight)
            return tf.reduce_mean(values), summed(values, sample_weight)
        shapes = self.subject.interface.output_shapes(self.subject.batch_size)
        weights = training.weights(batch.labels, sample_weight, shapes)
        compiled = training.loss(batch.labels, keras.tree.flatten(outputs), weights, sample_weight)
        loss = with_added(compiled, model.losses, sample_weight)
        loss = training.with_terms(loss, model, (x, y), called, batch.further, sample_weight)
        return loss, loss


def _recorded_calls(step: Step) -> list[Call]:
    """Return the calls that normalize or regularize in a step with another number of examples.

    They are empty if the batch is always the first axis, as in Keras' layers, or if the model fixes the number of examples.
    """
    model, count = step.subject.model, other_count(step.subject.batch_size)
    if not has_own_code(model) or not (normalizations(model) or regularized(model)):
        return []
    other = replace(step, subject=replace(step.subject, batch_size=count))
    try:
        with _traceable(model, step.training), recorded(model) as tensors:
            trace = traced(lambda *flat: other.run(other.unpacked(flat)), other.arguments, names_of(model))
    except Exception:  # user code may raise anything
        return []
    return calls_of(trace, tensors, count)


def own_loss(model: keras.Model, x: Any, y: Any, outputs: Any, sample_weight: tf.Tensor) -> tf.Tensor:
    """Return the model's `compute_loss` of a batch: one number, or several, which Keras sums."""
    weight = tf.identity(sample_weight, name=WEIGHT)
    try:
        loss = model._compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weight, training=True)
        return tf.cast(loss, tf.float32)
    except ExportError:
        raise
    except Exception as error:  # user code may raise anything
        where = f"{type(model).__name__}.compute_loss"
        raise ExportError(f"{where} cannot be traced: {reason(error, [sample_weight])}") from error


def _own_step(model: keras.Model, training: Training, x: Any, y: Any, batch: Batch) -> dict[str, tf.Tensor]:
    """Run the model's `train_step`, with offsets added to the gradients that it applies."""
    named: dict[str, tf.Tensor] = {}

    def changed(gradients: list[Any], variables: list[Any]) -> list[Any]:
        named.update(training.named_gradients(list(zip(gradients, variables, strict=True))))
        return [training.gradient(g, v, batch.mu) for g, v in zip(gradients, variables, strict=True)]

    with gradients_by(training.optimizer, changed):
        loss = step_loss(model, x, y, tf.identity(batch.sample_weight, name=WEIGHT))
    return {**named, "loss": loss}


@contextmanager
def only(model: keras.Model, trained: Sequence[keras.layers.Layer]) -> Iterator[None]:
    """Freeze all layers except the given ones by `trainable = False`; frozen BatchNormalization keeps its statistics."""
    kept = {id(inner) for layer in trained for inner in all_layers(layer)}
    frozen = [layer for layer in leaf_layers(model) if id(layer) not in kept]
    inside = [inner for layer in frozen for inner in all_layers(layer)]
    before = [(inner, inner.trainable) for inner in inside]
    variables = [(v, v.trainable) for inner in inside for v in inner._trainable_variables]  # LoRA freezes some
    own = list(model._trainable_variables) if id(model) not in kept else []
    variables += [(v, v.trainable) for v in own]
    for layer in frozen:
        layer.trainable = False
    for variable in own:
        variable.trainable = False
    try:
        yield
    finally:
        for layer, trainable in before:  # outer layers first, because they also set their inner layers
            layer.trainable = trainable
        for variable, trainable in variables:
            variable.trainable = trainable


def names_of(model: keras.Model) -> list[str]:
    """Return the names of a model's layers."""
    return [layer.name for layer in leaf_layers(model)]


def trace_schedule(schedule: Schedule) -> Trace:
    """Trace `schedule(step) -> learning_rate`: the rate of a step, counted from 0, as Keras computes it."""

    def rate(step: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"learning_rate": tf.cast(schedule(tf.cast(step, tf.int64)), tf.float32)}

    return inlined(traced(rate, [tf.TensorSpec([], tf.int32, name="step")], ()))


def trace_finalize(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Trace:
    """Trace `finalize() -> done`, which sets the weights to their moving averages, as `fit` does at the end."""

    def finalize() -> dict[str, tf.Tensor]:
        optimizer.finalize_variable_values(model.trainable_variables)
        return {"done": tf.constant(1)}

    return inlined(traced(finalize, [], names_of(model)))
