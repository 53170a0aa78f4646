"""Guidance of embeddings by trainable embeddings of the classes.

Zhang et al. 2023, GPFL: Simultaneously Learning Global and Personalized Feature Information for Personalized Federated
Learning (angle-level and magnitude-level guidance).

Each example with label y adds `category_embedding (CE(cos(f, C), y) + category_magnitude |f - G_y|)`. f is the example's
embedding after the model's valve, with the mean of the rows of `global_embeddings` G as the condition. C are the valve's
category embeddings, and CE is the cross-entropy with the cosines as logits. Each batch adds
`category_embedding category_decay / 2 |v|^2`, where v are all weights of the valve except its condition, including C.
"""

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.parameters import leaf_layers
from odt_sim.export.terms.term import Sizes, Step, Term
from odt_sim.export.valve import ConditionalValve
from odt_sim.model.train_inputs import TrainInput

SMALLEST = 1e-12
"""Added to squared norms, so that zeros have a gradient."""


def _inputs(sizes: Sizes) -> tuple[TrainInput, ...]:
    return (
        TrainInput("category_embedding"),
        TrainInput("category_magnitude"),
        TrainInput("category_decay"),
        TrainInput("global_embeddings", (sizes.classes, sizes.features)),
    )


def _loss(step: Step) -> tf.Tensor:
    valve = next((layer for layer in leaf_layers(step.model) if isinstance(layer, ConditionalValve)), None)
    if valve is None:
        raise ExportError(
            f"terms: category_embedding needs a conditional valve, and model {step.model.name!r} has none; add it "
            "with odt_sim.export.add_valve, or +model.valve=true"
        )
    received = step.inputs["global_embeddings"]
    generic = valve.under(step.embedding, tf.reduce_mean(received, 0))
    labels = tf.one_hot(step.labels, step.output.shape[-1])
    cosines = tf.matmul(_unit(generic), _unit(valve.category_embeddings.value), transpose_b=True)
    angle = -tf.reduce_sum(labels * tf.nn.log_softmax(cosines), -1)
    magnitude = _norm(generic - tf.matmul(labels, received))
    guidance = angle + step.inputs["category_magnitude"] * magnitude[:, 0]
    decayed = [weight for weight in valve.weights if weight is not valve.condition]  # even if they are frozen
    squares = tf.add_n([tf.reduce_sum(weight.value**2) for weight in decayed])
    decay = step.inputs["category_decay"] / 2 * squares
    return step.inputs["category_embedding"] * (tf.reduce_mean(guidance * step.sample_weight) + decay)


def _unit(rows: tf.Tensor) -> tf.Tensor:
    return rows / _norm(rows)


def _norm(rows: tf.Tensor) -> tf.Tensor:
    """Return the norm of each row, `[rows, 1]`."""
    return tf.sqrt(tf.reduce_sum(rows * rows, -1, keepdims=True) + SMALLEST)


CATEGORY_EMBEDDING = Term("category_embedding", _loss, _inputs, embeds=True)
