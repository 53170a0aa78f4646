"""A Keras model as a side of the check: Keras itself computes, eagerly, on rows without padding."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.export.emit.signatures import Variable
from odt_sim.export.keras.interface import Interface
from odt_sim.export.keras.own_steps import compiled_as, own_method, step_loss, with_added
from odt_sim.export.keras.precision import in_float32
from odt_sim.export.keras.steps import own_loss
from odt_sim.export.keras.training import Training
from odt_sim.export.self_check.side import Array, CannotRun, Part, Snapshot
from odt_sim.model.contract.names import full

ROUNDING = 1e-6
"""The part of the largest gradient below which a gradient is rounding: that of a bias before a normalization, or of keys."""


@dataclass(frozen=True)
class KerasSide:
    """A model, its loss and its optimizer.

    Attributes:
        model: The model.
        interface: Its inputs and outputs.
        training: Its loss and optimizer; the latter is changed and must be restored by `reset`.
        named: The weights and slots by their names in the file.
        last_gradients: The last gradient of each weight, by the variable's `id`.
    """

    model: keras.Model
    interface: Interface
    training: Training
    named: dict[str, Variable]
    last_gradients: dict[int, Any] = field(init=False, default_factory=dict)

    @cached_property
    def before(self) -> Snapshot:
        """The values of all variables before the check, at the first `reset`."""
        weights = [variable for name, variable in self.named.items() if name.startswith("a")]
        return Snapshot([*self.named.values(), *self.of_keras()], weights)

    def of_keras(self) -> list[Variable]:
        """Return the variables of the model and the optimizer."""
        return [*self.model.variables, *self.training.optimizer.variables]

    def reset(self, random: np.random.Generator | None = None) -> None:
        """Set all variables to their values before the check; see `Reference`."""
        self.before.restore(random)

    def states(self) -> dict[str, Any]:
        """Return the weights and slots; see `Side`."""
        return {name: tf.convert_to_tensor(variable) for name, variable in self.named.items()}

    def rounding(self) -> dict[str, Array]:
        """Return which elements of weights had a last gradient of rounding only; see `Reference`."""
        largest = max(map(_root_mean_square, self.last_gradients.values()), default=0.0)
        gradients = {name: self.last_gradients.get(id(variable)) for name, variable in self.named.items()}
        return {
            name: np.asarray(tf.abs(gradient) <= ROUNDING * largest)
            for name, gradient in gradients.items()
            if gradient is not None and not isinstance(gradient, tf.IndexedSlices)
        }

    def run(self, part: Part) -> dict[str, Array]:
        """Infer, or train one step; see `Side`."""
        try:
            with in_float32(self.model):
                return self._infer(part) if part.signature == "infer" else {"loss": self._step(part).numpy()}
        except Exception as error:  # user code may raise anything
            raise CannotRun(str(error)) from error

    def features(self, part: Part) -> Any:
        """Return the inputs of a part in the model's structure."""
        specs = self.interface.specs(None)
        return self.interface.arguments([tf.constant(part.inputs[spec.name], spec.dtype) for spec in specs])

    def _infer(self, part: Part) -> dict[str, Array]:
        outputs = keras.tree.flatten(self.outputs(part, training=False))
        return {
            full("logits", name): value.numpy()
            for name, value in zip(self.interface.output_names, outputs, strict=True)
        }

    def outputs(self, part: Part, *, training: bool) -> Any:
        """Return the outputs of the model in its structure."""
        return self.model(self.features(part), training=training)

    def _step(self, part: Part) -> tf.Tensor:
        """Train one step, and return the loss before it."""
        self.training.optimizer.learning_rate.assign(part.further["learning_rate"])
        weight, method = tf.constant(part.inputs["sample_weight"]), own_method(self.model)
        labels = [tf.constant(part.inputs[spec.name], spec.dtype) for spec in self.training.targets]
        with ExitStack() as stack:
            if method:
                of_batch = partial(self.training.of_batch, self.model)
                stack.enter_context(compiled_as(self.model, self.training.optimizer, of_batch))
            if method == "train_step":
                return step_loss(self.model, self.features(part), self._returned(labels), weight)
            loss, gradients = (
                self._own_gradients(part, labels, weight) if method else self.gradients(part, labels, weight)
            )
        variables = self.model.trainable_variables
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        self.last_gradients.update({id(v): g for g, v in pairs})
        self.training.optimizer.apply_gradients([(self.training.gradient(g, v, None), v) for g, v in pairs])
        return loss

    def _own_gradients(self, part: Part, labels: Sequence[tf.Tensor], weight: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Return the loss of the model's `compute_loss`, and its gradients."""
        with tf.GradientTape() as tape:
            features = self.features(part)
            outputs = self.model(features, training=True)
            values = own_loss(self.model, features, self._returned(labels), outputs, weight)
            scaled = self.training.optimizer.scale_loss(tf.reduce_sum(values))
        return tf.reduce_mean(values), tape.gradient(scaled, self.model.trainable_variables)

    def gradients(self, part: Part, labels: Sequence[tf.Tensor], weight: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Return the loss as Keras' trainer computes it, and its gradients by the trainable variables."""
        features, training = self.features(part), self.training
        with tf.GradientTape() as tape:
            called = training.terms.called(self.model, features)
            compiled = None if training.by_model else self.loss(labels, keras.tree.flatten(called[0]), weight)
            loss = with_added(compiled, self.model.losses, weight)
            data, further = (features, self._returned(labels)), self._further(part)
            loss = training.with_terms(loss, self.model, data, called, further, weight)
            scaled = training.optimizer.scale_loss(loss)
        return loss, tape.gradient(scaled, self.model.trainable_variables)

    def loss(self, labels: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], weight: tf.Tensor) -> tf.Tensor:
        """Return the sum of the outputs' losses, each a `keras.losses.Loss`, times their factors."""
        weights = self.training.weights(labels, weight, [output.shape for output in outputs])
        losses = [
            objective.function(y, output, sample_weight=factor) * objective.weight
            for objective, y, output, factor in zip(self.training.objectives, labels, outputs, weights, strict=True)
        ]
        return tf.add_n(losses)

    def _returned(self, labels: Sequence[tf.Tensor]) -> Any:
        """Return the targets in the model's structure; None if it takes none."""
        return None if self.training.without_targets else self.interface.returned(labels)

    def _further(self, part: Part) -> list[tf.Tensor]:
        values = {**part.inputs, **part.further}
        return [tf.constant(values[each.name], each.dtype) for each in self.training.terms.declared]


def _root_mean_square(gradient: Any) -> float:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    return float(tf.sqrt(tf.reduce_mean(tf.square(values))))
