"""Trace a Keras model: inference, and training steps for all or some of its weights."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.export.inlining import inlined
from odt_sim.export.interface import Interface, one_line
from odt_sim.export.losses import Objective
from odt_sim.export.lowering import Trace
from odt_sim.export.own_steps import (
    WEIGHT,
    check_weighted,
    compiled_as,
    example_losses,
    gradients_by,
    overrides_loss,
    own_method,
    step_loss,
)
from odt_sim.export.padding_rows import real_activity_only, real_rows_only
from odt_sim.export.parameters import all_layers, leaf_layers
from odt_sim.export.signatures import handle
from odt_sim.export.sparse_gradients import fixed_shapes
from odt_sim.export.terms.applied import AppliedTerms
from odt_sim.export.tracing import traced, unrolled
from odt_sim.model.names import full, is_one_of

PRODUCTS = {"MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"}
NEARLY_NONE = 1e-16  # above the value that a device writes for a weight of 0, and below the rounding of other weights


@dataclass(frozen=True)
class Training:
    """The settings of a model's training steps.

    Attributes:
        objectives: The loss of each output.
        optimizer: A built optimizer; its learning rate stays a variable in the traces.
        offsets: A variable b per trainable weight, by the weight's `id`: a step then uses g + mu w + b instead of the
            gradient g. Empty for steps without offsets.
        class_weight: A factor per class on its examples' losses, `[classes]`; None for no factors.
        gradient_names: The name under which a step returns the gradient of a trainable weight, by the weight's `id`;
            empty for steps that return only the loss.
        terms: The terms that are added to the loss.
        dense: Whether the gradient of an Embedding is dense, over its whole table, as in PyTorch. Keras' optimizers process
            each position of a batch separately, so Adam squares the gradients of a repeated row before adding them.
    """

    objectives: tuple[Objective, ...]
    optimizer: keras.optimizers.Optimizer
    offsets: Mapping[int, tf.Variable] = field(default_factory=dict)
    class_weight: NDArray[np.float32] | None = None
    gradient_names: Mapping[int, str] = field(default_factory=dict)
    terms: AppliedTerms = field(default_factory=AppliedTerms)
    dense: bool = False

    @property
    def targets(self) -> list[tf.TensorSpec]:
        """The targets of each output."""
        return [objective.target for objective in self.objectives]

    def weights(
        self, targets: Sequence[tf.Tensor], sample_weight: tf.Tensor, outputs: Sequence[tf.TensorShape]
    ) -> list[tf.Tensor]:
        """Return the weights of the values of each output's loss, per example or per position."""
        factors, rows = self.class_weight, [-1]
        given = tf.nn.relu(tf.cast(sample_weight, tf.float32) - NEARLY_NONE)
        weights = [tf.reshape(given, rows + [1] * (objective.rank - 1)) for objective in self.objectives]
        if factors is None:
            return weights
        each = zip(weights, targets, outputs, self.objectives, strict=True)
        return [weight * tf.gather(factors, _counted(_classes(y, output), own)) for weight, y, output, own in each]

    def loss(
        self,
        targets: Sequence[tf.Tensor],
        outputs: Sequence[tf.Tensor],
        weights: Sequence[tf.Tensor],
        sample_weight: tf.Tensor,
    ) -> tf.Tensor:
        """Return the sum of the outputs' losses, each times its factor, `[]`."""
        real = tf.cast(tf.not_equal(sample_weight, 0.0), tf.float32)
        losses = [
            objective.loss(y, output, weight, real)
            for objective, y, output, weight in zip(self.objectives, targets, outputs, weights, strict=True)
        ]
        return self.total(losses)

    def with_terms(
        self,
        loss: tf.Tensor,
        model: keras.Model,
        data: tuple[Any, Any],
        outputs: tuple[Any, tf.Tensor | None],
        further: Sequence[tf.Tensor],
        sample_weight: tf.Tensor,
    ) -> tf.Tensor:
        """Return a batch's loss plus the terms; see `AppliedTerms.loss`."""
        if not self.terms.terms:
            return loss
        y, output = (keras.tree.flatten(each)[0] for each in (data[1], outputs[0]))
        classifies = any(each.classifies for each in self.terms.terms)
        labels = tf.cast(tf.reshape(_classes(y, output.shape), [-1]), tf.int32) if classifies else None
        return loss + self.terms.loss(model, data, outputs, labels, further, sample_weight)

    def of_batch(self, y: Any, y_pred: Any, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
        """Return the loss of a batch, with the arguments of Keras' compiled loss."""
        targets, outputs = keras.tree.flatten(y), keras.tree.flatten(y_pred)
        if any(objective.function is None for objective in self.objectives):
            raise ExportError(
                "loss: the model's class uses a compiled loss, found none; give loss=..., or compile with one"
            )
        given = tf.ones(tf.shape(outputs[0])[:1]) if sample_weight is None else sample_weight
        return self.loss(targets, outputs, self.weights(targets, given, [output.shape for output in outputs]), given)

    def total(self, losses: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the sum of the losses, each times the factor of its output."""
        own = zip(losses, self.objectives, strict=True)
        weighted = [loss if objective.weight == 1.0 else loss * objective.weight for loss, objective in own]
        return tf.add_n(weighted) if len(weighted) > 1 else weighted[0]

    def losses(
        self, targets: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], masks: Sequence[tf.Tensor | None]
    ) -> list[tf.Tensor]:
        """Return each example's loss for each output, `[batch]`, without the factors of the outputs."""
        given = zip(self.objectives, targets, outputs, masks, strict=True)
        return [objective.losses(y, output, mask) for objective, y, output, mask in given]

    def gradient(self, gradient: tf.Tensor, weight: keras.Variable, mu: tf.Tensor | None) -> tf.Tensor:
        """Return the gradient of a step, with its offset; an Embedding's is made dense for `dense` or a loss scale.

        Otherwise, it stays a gradient per position in the batch, as in Keras. The offset of each row then counts as one more
        position, so that an offset of 0 changes nothing: optimizers add up the squares of the positions.
        """
        scale = self.optimizer.loss_scale_factor
        dense = self.dense or scale is not None or not isinstance(gradient, tf.IndexedSlices)
        gradient = tf.convert_to_tensor(gradient) if dense else gradient
        if mu is None:
            return gradient
        offset = (scale or 1.0) * (mu * weight.value + self.offsets[id(weight)])
        if dense:
            return gradient + offset
        rows = tf.range(weight.shape[0], dtype=gradient.indices.dtype)
        values, places = (tf.concat(pair, 0) for pair in ((gradient.values, offset), (gradient.indices, rows)))
        return tf.IndexedSlices(values, places, gradient.dense_shape)

    def named_gradients(self, gradients: Sequence[tuple[tf.Tensor, keras.Variable]]) -> dict[str, tf.Tensor]:
        """Return a step's gradients by name, without the optimizer's loss scale."""
        factor = self.optimizer.scale_loss(tf.ones([]))
        named = [(gradient, self.gradient_names.get(id(weight))) for gradient, weight in gradients]
        return {name: tf.convert_to_tensor(gradient) / factor for gradient, name in named if name is not None}


def _counted(classes: tf.Tensor, objective: Objective) -> tf.Tensor:
    """Return classes with the ignored class replaced by 0, because it may have no factor, such as -1."""
    ignored = objective.ignore_class
    return classes if ignored is None else tf.where(tf.equal(classes, ignored), 0, classes)


def _classes(y: tf.Tensor, output: tf.TensorShape) -> tf.Tensor:
    """Return the class of each example or position."""
    if y.dtype.is_integer:
        return y
    return tf.cast(tf.squeeze(y, -1), tf.int32) if output[-1] == 1 else tf.argmax(y, -1, tf.int32)


def trace_infer(
    model: keras.Model,
    interface: Interface,
    batch_size: int | None,
    *,
    x: str = "x",
    output: str = "logits",
    training: bool = False,
    masks_too: bool = False,
) -> Trace:
    """Trace `infer(x) -> logits`, optionally with other names; `training` is Keras' argument.

    With `masks_too`, it also returns the `mask` of each output that has one, int32, with 1 for positions that count.
    """

    def infer(*flat: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = keras.tree.flatten(model(interface.arguments(flat), training=training))
        named = dict(zip(interface.output_names, outputs, strict=True))
        masks = {full("mask", name): getattr(value, "_keras_mask", None) for name, value in named.items()}
        counted = {name: tf.cast(mask, tf.int32) for name, mask in masks.items() if mask is not None}
        return {full(output, name): value for name, value in named.items()} | (counted if masks_too else {})

    with unrolled(model):
        return inlined(traced(infer, interface.specs(batch_size, x), names_of(model)))


def trace_losses(model: keras.Model, interface: Interface, training: Training, batch_size: int | None) -> Trace:
    """Trace `loss(logits, y, mask) -> losses`: each example's loss, `[batch]`, without regularization.

    If the model's class computes the loss, the function takes `x` instead of masks.
    """
    shapes = dict(zip(interface.output_names, interface.output_shapes(batch_size), strict=True))
    arguments = [tf.TensorSpec(shape, name=full("logits", name)) for name, shape in shapes.items()]
    own, count = overrides_loss(model), len(arguments)
    masked = [name for name, objective in zip(shapes, training.objectives, strict=True) if objective.masked]
    masks = [tf.TensorSpec(shapes[name][:2], tf.int32, name=full("mask", name)) for name in masked]

    def loss(*flat: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs, targets, others = flat[:count], flat[count : 2 * count], flat[2 * count :]
        if own:
            return {"losses": example_losses(model, interface, others, targets, outputs)}
        given = dict(zip(masked, others, strict=True))
        losses = training.losses(targets, outputs, [given.get(name) for name in shapes])
        named = {full("losses", name): own for name, own in zip(interface.output_names, losses, strict=True)}
        return {**named, "losses": training.total(losses)}

    arguments += [*training.targets, *(interface.specs(batch_size) if own else masks)]
    if not own:
        return inlined(traced(loss, arguments, names_of(model)))
    with unrolled(model), compiled_as(model, training.optimizer, training.of_batch):
        return inlined(traced(loss, arguments, names_of(model)))


def trace_train(
    model: keras.Model, interface: Interface, training: Training, batch_size: int | None, *, x: str = "x"
) -> Trace:
    """Trace `train(x, y, sample_weight) -> loss`, which changes the trainable weights.

    Terms add their inputs, and offsets add `mu`. If the training names gradients, the step also returns them.
    """
    inputs, targets = interface.specs(batch_size, x), training.targets
    arguments = [*inputs, *targets, tf.TensorSpec([batch_size], name="sample_weight")]
    further = training.terms.specs(batch_size)
    arguments += [*further, *([tf.TensorSpec([], name="mu")] if training.offsets else [])]
    method, examples = own_method(model), len(inputs) + len(targets)

    def train(*flat: tf.Tensor) -> dict[str, tf.Tensor]:
        features, labels = interface.arguments(flat[: len(inputs)]), flat[len(inputs) : examples]
        sample_weight, mu = flat[examples], flat[-1] if training.offsets else None
        weights = training.weights(labels, sample_weight, interface.output_shapes(batch_size)) if not method else []
        with real_rows_only(model, sample_weight), real_activity_only(model, sample_weight), fixed_shapes():
            if method == "train_step":
                return _own_step(model, training, features, interface.returned(labels), sample_weight, mu)
            with tf.GradientTape() as tape:
                called = outputs, _ = training.terms.called(model, features, embedded=x == "embedding")
                if method:
                    loss = _own_loss(model, features, interface.returned(labels), outputs, sample_weight)
                else:
                    loss = training.loss(labels, keras.tree.flatten(outputs), weights, sample_weight)
                    loss = tf.add_n([loss, *model.losses]) if model.losses else loss
                    data, values = (features, interface.returned(labels)), flat[examples + 1 :][: len(further)]
                    loss = training.with_terms(loss, model, data, called, values, sample_weight)
                scaled = training.optimizer.scale_loss(loss)
            variables = model.trainable_variables
            pairs = zip(tape.gradient(scaled, variables), variables, strict=True)
            gradients = [(g, v) for g, v in pairs if g is not None]
            named = training.named_gradients(gradients)
            training.optimizer.apply_gradients([(training.gradient(g, v, mu), v) for g, v in gradients])
            return {**named, "loss": loss}

    with unrolled(model):
        if not method:
            return inlined(traced(train, arguments, names_of(model)))
        with compiled_as(model, training.optimizer, training.of_batch):
            trace = traced(train, arguments, names_of(model))
            check_weighted(trace, model, [handle(v) for v in model.trainable_variables], batch_size)
            return inlined(trace, temporary={handle(v): v.value for m in model.metrics for v in m.variables})


def _own_loss(model: keras.Model, x: Any, y: Any, outputs: Any, sample_weight: tf.Tensor) -> tf.Tensor:
    """Return the model's `compute_loss` of a batch."""
    weight = tf.identity(sample_weight, name=WEIGHT)
    try:
        loss = model._compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weight, training=True)
        return tf.reshape(tf.cast(loss, tf.float32), [])
    except ExportError:
        raise
    except Exception as error:  # user code may raise anything
        raise ExportError(f"{type(model).__name__}.compute_loss cannot be traced: {one_line(error)}") from error


def _own_step(
    model: keras.Model, training: Training, x: Any, y: Any, sample_weight: tf.Tensor, mu: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """Run the model's `train_step`, with offsets added to the gradients that it applies."""
    named: dict[str, tf.Tensor] = {}

    def changed(gradients: list[Any], variables: list[Any]) -> list[Any]:
        named.update(training.named_gradients(list(zip(gradients, variables, strict=True))))
        return [training.gradient(g, v, mu) for g, v in zip(gradients, variables, strict=True)]

    with gradients_by(training.optimizer, changed):
        loss = step_loss(model, x, y, tf.identity(sample_weight, name=WEIGHT))
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


def endings_of(infer: Trace) -> list[list[str]]:
    """Return, for each output of a traced model, the types of the ops back to its last products with weights."""
    outputs = infer.concrete.structured_outputs
    return [_ending(output) for name, output in outputs.items() if not is_one_of(name, ("mask",))]


def _ending(output: tf.Tensor) -> list[str]:
    pending, seen, types = [output.op], set(), []
    while pending:
        op = pending.pop(0)
        if op.name not in seen and op.type not in PRODUCTS:
            seen.add(op.name)
            types += [] if _only_moves(op) else [str(op.type)]
            pending += [t.op for t in op.inputs]
    return types


def _only_moves(op: tf.Operation) -> bool:
    """Return whether an op keeps values and their last axis, as the ops around a TimeDistributed head do."""
    rank = op.outputs[0].shape.rank if op.outputs else None
    if op.type == "Transpose":
        order = tf.get_static_value(op.inputs[1])
        return order is not None and order[-1] == len(order) - 1
    if op.type == "Pack":
        return rank is not None and op.get_attr("axis") % rank != rank - 1
    return op.type in ("Const", "Identity", "Reshape", "Squeeze", "ExpandDims")
