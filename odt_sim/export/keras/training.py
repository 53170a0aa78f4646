"""The loss and the gradients of a model's training steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import numpy as keras_numpy  # the only place to extend `keras.ops.divide`
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.export.keras.objective import Objective
from odt_sim.export.terms.applied import AppliedTerms


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """Keep the indices of sparse gradients in divisions while a training step is traced."""
    own = keras_numpy.divide
    keras_numpy.divide = _division(own)
    try:
        yield
    finally:
        keras_numpy.divide = own


def _division(own: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def divide(x1: Any, x2: Any) -> Any:
        """Return the rows S_i / D[i] of S / D for sparse S and dense D."""
        if (
            not isinstance(x1, tf.IndexedSlices)
            or isinstance(x2, tf.IndexedSlices)
            or not len(getattr(x2, "shape", ()))
        ):
            return own(x1, x2)
        return tf.IndexedSlices(own(x1.values, _rows(x2, x1.indices)), x1.indices, x1.dense_shape)

    return divide


def _rows(x: Any, places: tf.Tensor) -> tf.Tensor:
    """Return rows of D; if D = sqrt(E) or E + e, compute them from only these rows of E."""
    op = getattr(x, "op", None)
    if op is not None and op.type == "Sqrt":
        return tf.sqrt(_rows(op.inputs[0], places))
    if op is not None and op.type == "AddV2" and op.inputs[1].shape.rank == 0:
        return _rows(op.inputs[0], places) + op.inputs[1]
    return tf.gather(x, places)


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

    @property
    def by_model(self) -> bool:
        """Whether the model's class or its layers compute the loss."""
        return any(objective.function is None for objective in self.objectives)

    @property
    def without_targets(self) -> bool:
        """Whether the model takes no targets: those of the signatures are not used."""
        return all(objective.without_targets for objective in self.objectives)

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
    ) -> tf.Tensor | None:
        """Return the sum of the outputs' losses, each times its factor, `[]`; None if only the model computes one."""
        if self.by_model:
            return None
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

    def of_batch(
        self, model: keras.Model, y: Any, y_pred: Any, sample_weight: tf.Tensor | None = None
    ) -> tf.Tensor | None:
        """Return the loss of a batch, with the arguments of Keras' compiled loss; None if only layers add one."""
        targets, outputs = keras.tree.flatten(y), keras.tree.flatten(y_pred)
        if self.by_model and model.losses:
            return None
        if self.by_model:
            raise ExportError(
                "loss: the model's class uses a compiled loss, found none; pass loss=..., or compile with one"
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
