"""The distance of embeddings from class prototypes.

Tan et al. 2022, FedProto: Federated Prototype Learning across Heterogeneous Clients, equation 7.

Each example adds `prototypes |h - p_y|^2`, with its embedding h and the row p_y of `class_prototypes` for its label y.
Examples of classes with `known_prototypes` 0 add nothing.
"""

import tensorflow as tf

from odt_sim.export.terms.term import Sizes, Step, Term
from odt_sim.model.manifest import TrainInput


def _inputs(sizes: Sizes) -> tuple[TrainInput, ...]:
    return (
        TrainInput("prototypes"),
        TrainInput("class_prototypes", (sizes.classes, sizes.features)),
        TrainInput("known_prototypes", (sizes.classes,)),
    )


def _loss(step: Step) -> tf.Tensor:
    classes = tf.one_hot(step.labels, step.output.shape[-1])
    own = tf.matmul(classes, step.inputs["class_prototypes"])
    known = tf.reduce_sum(classes * step.inputs["known_prototypes"], -1)
    return step.inputs["prototypes"] * known * tf.reduce_sum((step.embedding - own) ** 2, -1)


PROTOTYPES = Term("prototypes", _loss, _inputs, embeds=True)
