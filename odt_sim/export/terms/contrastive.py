"""The model-contrastive loss (Li et al. 2021, Model-Contrastive Federated Learning, equation 3).

Each example adds `-contrastive log(e^(s_g / T) / (e^(s_g / T) + e^(s_p / T)))`, where s_g and s_p are the cosines between
its embedding and `global_embedding` or `previous_embedding`, and T is `contrastive_temperature`.
"""

import tensorflow as tf

from odt_sim.export.terms.term import Sizes, Step, Term
from odt_sim.model.manifest import TrainInput

SMALLEST = 1e-12
"""Added to squared norms, so that an embedding of zeros has a gradient."""


def _inputs(sizes: Sizes) -> tuple[TrainInput, ...]:
    return (
        TrainInput("contrastive"),
        TrainInput("contrastive_temperature", default=0.5),
        TrainInput("global_embedding", (None, sizes.features)),
        TrainInput("previous_embedding", (None, sizes.features)),
    )


def _loss(step: Step) -> tf.Tensor:
    towards, away = (_cosine(step.embedding, step.inputs[name]) for name in ("global_embedding", "previous_embedding"))
    return step.inputs["contrastive"] * tf.math.softplus((away - towards) / step.inputs["contrastive_temperature"])


def _cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    squares = (tf.reduce_sum(a * a, -1) + SMALLEST) * (tf.reduce_sum(b * b, -1) + SMALLEST)
    return tf.reduce_sum(a * b, -1) * tf.math.rsqrt(squares)


CONTRASTIVE = Term("contrastive", _loss, _inputs, embeds=True)
