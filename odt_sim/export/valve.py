"""A conditional valve between the body and the head of a Keras model.

Zhang et al. 2023, GPFL: Simultaneously Learning Global and Personalized Feature Information for Personalized Federated
Learning (Conditional Valve, Global Category Embedding).
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.own_steps import own_method
from odt_sim.export.parameters import all_layers, group_of_layers
from odt_sim.export.split_model import split_before_head
from odt_sim.model.valve import CONDITION, EMBEDDINGS, VALVE

ADVICE = "leave it out, or choose another strategy"


class ConditionalValve(keras.layers.Layer):  # type: ignore[misc]
    """A layer that scales and shifts embeddings h by a condition c: `relu(h (gamma(c) + 1) + beta(c))`.

    gamma and beta each consist of a Dense layer with ReLU and a LayerNormalization. The layer's condition is not trained; a
    strategy sets it. Only the term `category_embedding` trains the category embeddings.
    """

    in_head = True  # for `group_of_layers`

    def __init__(self, classes: int) -> None:
        """Set the number of category embeddings."""
        super().__init__(name=VALVE)
        self.classes = classes

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Add the weights; the condition and each category embedding have the size of an embedding."""
        features = input_shape[-1]
        self.condition = self.add_weight(name=CONDITION, shape=(features,), initializer="zeros", trainable=False)
        normal = keras.initializers.RandomNormal(stddev=1.0)
        self.category_embeddings = self.add_weight(name=EMBEDDINGS, shape=(self.classes, features), initializer=normal)
        self.gamma, self.beta = (_of_condition(name, features) for name in ("gamma", "beta"))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return embeddings under the layer's condition, `[batch, features]`."""
        return self.under(inputs, self.condition.value)

    def under(self, inputs: tf.Tensor, condition: tf.Tensor) -> tf.Tensor:
        """Return embeddings under a condition, `[batch, features]`.

        Args:
            inputs: Embeddings, `[batch, features]`.
            condition: `[features]`.
        """
        row = condition[tf.newaxis]
        return tf.nn.relu(inputs * (self.gamma(row) + 1.0) + self.beta(row))


def _of_condition(name: str, features: Any) -> keras.Sequential:
    dense = keras.layers.Dense(features, activation="relu", name=f"{name}_dense")
    normalization = keras.layers.LayerNormalization(epsilon=1e-5, name=f"{name}_normalization")
    part = keras.Sequential([dense, normalization], name=name)
    part.build((1, features))
    return part


def add_valve(model: Any, head: str | Sequence[str] | None = None) -> keras.Model:
    """Return a built Keras model with a conditional valve before its head; it shares the layers of the given one.

    A model that already has a valve is returned unchanged.

    Args:
        model: A Sequential or Functional model with one output `[batch, classes]` and embeddings `[batch, features]`.
        head: The layer or layers of the head, see `export_model`; the valve joins them.

    Raises:
        ExportError: The model is of another kind.
    """
    if not isinstance(model, keras.Model) or not getattr(model, "outputs", None) or own_method(model):
        raise ExportError(
            f"valve: expected a built Sequential or Functional model of Keras, found {type(model).__name__}; {ADVICE}"
        )
    shapes = [tuple(output.shape) for output in model.outputs]
    if len(shapes) > 1 or len(shapes[0]) != 2 or shapes[0][-1] < 2:
        found = ", ".join(map(str, shapes))
        raise ExportError(
            f"valve: model {model.name!r} needs one output [batch, classes], found outputs of shape {found}; {ADVICE}"
        )
    if any(isinstance(layer, ConditionalValve) for layer in all_layers(model)):
        return model
    body, classifier = split_before_head(model, group_of_layers(model, head))
    if len(body.output.shape) != 2:
        raise ExportError(
            f"valve: model {model.name!r} needs embeddings [batch, features], found shape {body.output.shape}; {ADVICE}"
        )
    inputs = getattr(model, "_inputs_struct", model.inputs)
    outputs = classifier(ConditionalValve(shapes[0][-1])(body.output))
    valved = keras.Model(inputs, outputs, name=model.name)
    if model.compiled:
        valved.compile(**model._compile_config.config)
    return valved
