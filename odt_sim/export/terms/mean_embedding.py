"""The distance of a batch's mean embedding from a given mean.

Zhang et al. 2023, Eliminating Domain Bias for Federated Learning in Representation Space, section 4 (mean regularization).

Each batch adds `mean_embedding / (2 F) |m - g|^2`, with the mean m of its F-dimensional embeddings and `global_mean` g.
"""

import tensorflow as tf

from odt_sim.export.terms.term import Sizes, Step, Term
from odt_sim.model.manifest import TrainInput


def _inputs(sizes: Sizes) -> tuple[TrainInput, ...]:
    return (TrainInput("mean_embedding"), TrainInput("global_mean", (sizes.features,)))


def _loss(step: Step) -> tf.Tensor:
    mean = tf.reduce_mean(step.embedding * step.sample_weight[:, tf.newaxis], 0)
    return step.inputs["mean_embedding"] * 0.5 * tf.reduce_mean((mean - step.inputs["global_mean"]) ** 2)


MEAN_EMBEDDING = Term("mean_embedding", _loss, _inputs, classifies=False, embeds=True)
