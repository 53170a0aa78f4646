"""Trace a Keras model: inference, and training steps on all or some of its weights."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.export.inlining import inlined
from odt_sim.export.lowering import Trace
from odt_sim.export.objective import Objective
from odt_sim.export.padding_rows import real_activity_only, real_rows_only
from odt_sim.export.parameters import all_layers, leaf_layers
from odt_sim.export.tracing import traced, unrolled

PRODUCTS = {"MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"}


@dataclass(frozen=True)
class Training:
    """How a model is trained.

    Attributes:
        objective: The loss.
        optimizer: A built optimizer; its learning rate stays a variable in the traces.
        offsets: A variable b per trainable weight, by the weight's `id`: a step then uses g + mu w + b instead of the
            gradient g. Empty for steps without offsets.
        class_weight: A factor per class on its examples' losses, `[classes]`; None for no factors.
        gradient_names: The name under which a step returns the gradient of a trainable weight, by the weight's `id`;
            empty for steps that return the loss alone.
    """

    objective: Objective
    optimizer: keras.optimizers.Optimizer
    offsets: Mapping[int, tf.Variable] = field(default_factory=dict)
    class_weight: NDArray[np.float32] | None = None
    gradient_names: Mapping[int, str] = field(default_factory=dict)

    def gradient(self, gradient: tf.Tensor, weight: keras.Variable, mu: tf.Tensor | None) -> tf.Tensor:
        """Return the gradient of a step; with an offset it is dense, also for an Embedding."""
        if mu is None:
            return gradient
        scale = self.optimizer.loss_scale_factor or 1.0
        return tf.convert_to_tensor(gradient) + scale * (mu * weight.value + self.offsets[id(weight)])

    def named_gradients(self, gradients: Sequence[tuple[tf.Tensor, keras.Variable]]) -> dict[str, tf.Tensor]:
        """Return the gradients that a step returns, without the optimizer's loss scale."""
        factor = self.optimizer.scale_loss(tf.ones([]))
        named = [(gradient, self.gradient_names.get(id(weight))) for gradient, weight in gradients]
        return {name: tf.convert_to_tensor(gradient) / factor for gradient, name in named if name is not None}

    def sample_weight(self, y: tf.Tensor, sample_weight: tf.Tensor, output: tf.TensorShape) -> tf.Tensor:
        """Return the weight of each loss, per example or per position."""
        weight = tf.reshape(sample_weight, [-1] + [1] * (len(output) - 2))
        return weight if self.class_weight is None else weight * tf.gather(self.class_weight, _classes(y, output))


def _classes(y: tf.Tensor, output: tf.TensorShape) -> tf.Tensor:
    """Return the class of each example or position."""
    if y.dtype.is_integer:
        return y
    return tf.cast(tf.squeeze(y, -1), tf.int32) if output[-1] == 1 else tf.argmax(y, -1, tf.int32)


def trace_infer(
    model: keras.Model, batch_size: int | None, *, x: str = "x", output: str = "logits", training: bool = False
) -> Trace:
    """Trace `infer(x) -> logits`, optionally with other names; `training` is Keras' argument."""

    def infer(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {output: model(x, training=training)}

    with unrolled(model):
        return inlined(traced(infer, [_input(model, batch_size, x)], names_of(model)))


def trace_train(model: keras.Model, training: Training, batch_size: int | None, *, x: str = "x") -> Trace:
    """Trace `train(x, y, sample_weight) -> loss`, which changes the trainable weights; with offsets, also `mu`.

    If the training names gradients, they are returned, too.
    """
    output = tf.TensorShape([batch_size, *model.outputs[0].shape[1:]])
    arguments = [_input(model, batch_size, x), training.objective.target(output)]
    arguments += [tf.TensorSpec(output[:1], name="sample_weight")]
    arguments += [tf.TensorSpec([], name="mu")] if training.offsets else []
    optimizer, variables = training.optimizer, model.trainable_variables

    def train(
        x: tf.Tensor, y: tf.Tensor, sample_weight: tf.Tensor, mu: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        weight = training.sample_weight(y, sample_weight, output)
        with (
            tf.GradientTape() as tape,
            real_rows_only(model, sample_weight),
            real_activity_only(model, sample_weight),
        ):
            outputs = model(x, training=True)
            _check_unmasked(outputs)
            loss = training.objective.function(y, outputs, sample_weight=weight)
            loss = tf.add_n([loss, *model.losses]) if model.losses else loss
            scaled = optimizer.scale_loss(loss)
        pairs = zip(tape.gradient(scaled, variables), variables, strict=True)
        gradients = [(g, v) for g, v in pairs if g is not None]
        named = training.named_gradients(gradients)
        optimizer.apply_gradients([(training.gradient(g, v, mu), v) for g, v in gradients])
        return {**named, "loss": loss}

    with unrolled(model):
        return inlined(traced(train, arguments, names_of(model)))


def _check_unmasked(outputs: tf.Tensor) -> None:
    if getattr(outputs, "_keras_mask", None) is not None:
        raise ExportError(
            "the model's output carries a mask, so Keras would weight a padded batch differently from its real rows; "
            "set mask_zero=False, or return_sequences=False in the last recurrent layer"
        )


@contextmanager
def only(model: keras.Model, trained: Sequence[keras.layers.Layer]) -> Iterator[None]:
    """Freeze all layers except some, as by `trainable = False`: BatchNormalization then keeps its statistics."""
    kept = {id(inner) for layer in trained for inner in all_layers(layer)}
    frozen = [layer for layer in leaf_layers(model) if id(layer) not in kept]
    before = [(inner, inner.trainable) for layer in frozen for inner in all_layers(layer)]
    for layer in frozen:
        layer.trainable = False
    try:
        yield
    finally:
        for layer, trainable in before:  # outer layers first: they also set their inner ones
            layer.trainable = trainable


def names_of(model: keras.Model) -> list[str]:
    """Return the names of a model's layers."""
    return [layer.name for layer in leaf_layers(model)]


def _input(model: keras.Model, batch_size: int | None, name: str) -> tf.TensorSpec:
    (x,) = model.inputs
    return tf.TensorSpec([batch_size, *x.shape[1:]], x.dtype, name=name)


def ending_of(infer: Trace) -> list[str]:
    """Return the types of the ops from a traced model's output back to its last product with weights."""
    pending, seen, types = [infer.concrete.structured_outputs["logits"].op], set(), []
    while pending:
        op = pending.pop(0)
        if op.name not in seen and op.type not in PRODUCTS:
            seen.add(op.name)
            types += [] if op.type in ("Identity", "Reshape") else [str(op.type)]
            pending += [t.op for t in op.inputs]
    return types
