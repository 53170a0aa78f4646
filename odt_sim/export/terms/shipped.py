"""The shipped terms. The defaults of their inputs make them zero."""

import tensorflow as tf

from odt_sim.export.terms.term import Step, Term
from odt_sim.model.contract.manifest import TrainInput

SMALLEST = 1e-12
"""Added to squared norms, so that an embedding of zeros has a gradient."""


def _contrastive(step: Step) -> tf.Tensor:
    towards, away = (_cosine(step.embedding, step.inputs[name]) for name in ("global_embedding", "previous_embedding"))
    return step.inputs["contrastive"] * tf.math.softplus((away - towards) / step.inputs["contrastive_temperature"])


def _cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    squares = (tf.reduce_sum(a * a, -1) + SMALLEST) * (tf.reduce_sum(b * b, -1) + SMALLEST)
    return tf.reduce_sum(a * b, -1) * tf.math.rsqrt(squares)


CONTRASTIVE = Term(
    "contrastive",
    _contrastive,
    lambda sizes: (
        TrainInput("contrastive"),
        TrainInput("contrastive_temperature", default=0.5),
        TrainInput("global_embedding", (None, sizes.features)),
        TrainInput("previous_embedding", (None, sizes.features)),
    ),
    embeds=True,
)
"""The model-contrastive loss (Li et al. 2021, Model-Contrastive Federated Learning, equation 3).

Each example adds `-contrastive log(e^(s_g / T) / (e^(s_g / T) + e^(s_p / T)))`, where s_g and s_p are the cosines between
its embedding and `global_embedding` or `previous_embedding`, and T is `contrastive_temperature`.
"""


def _distillation(step: Step) -> tf.Tensor:
    temperature = step.inputs["distillation_temperature"]
    teacher = tf.nn.log_softmax(step.inputs["teacher_logits"] / temperature)
    student = tf.nn.log_softmax(step.logits / temperature)
    divergence = tf.reduce_sum(tf.exp(teacher) * (teacher - student), -1)
    return step.inputs["distillation"] * step.inputs["distillation_weight"] * temperature**2 * divergence


DISTILLATION = Term(
    "distillation",
    _distillation,
    lambda sizes: (
        TrainInput("distillation"),
        TrainInput("distillation_temperature", default=1.0),
        TrainInput("distillation_weight", (None,), default=1.0),
        TrainInput("teacher_logits", (None, sizes.classes)),
    ),
)
"""Knowledge distillation (Hinton et al. 2015, Distilling the Knowledge in a Neural Network, section 2).

Each example adds `distillation v T^2 KL(softmax(t / T) || softmax(z / T))`, with the model's logits z, `teacher_logits` t,
`distillation_temperature` T and the example's `distillation_weight` v.
"""


def _logit_shift(step: Step) -> tf.Tensor:
    classes = tf.one_hot(step.labels, step.output.shape[-1])
    shifted = tf.nn.log_softmax(step.logits + step.inputs["logit_shift"])
    return tf.reduce_sum(classes * (tf.nn.log_softmax(step.logits) - shifted), -1)


LOGIT_SHIFT = Term("logit_shift", _logit_shift, lambda sizes: (TrainInput("logit_shift", (sizes.classes,)),))
"""A cross-entropy of shifted logits, for losses calibrated by class frequencies.

With the input `logit_shift` s, `[classes]`, the loss is computed from the logits `z + s`: `log p_s(y)` of the shifted
logits replaces `log p(y)`. With `s = log n_c`, this is the balanced softmax of Ren et al. 2020; with `s = -tau n_c^(-1/4)`,
the calibrated loss of Zhang et al. 2022.
"""


def _mean_embedding(step: Step) -> tf.Tensor:
    mean = tf.reduce_mean(step.embedding * step.sample_weight[:, tf.newaxis], 0)
    return step.inputs["mean_embedding"] * 0.5 * tf.reduce_mean((mean - step.inputs["global_mean"]) ** 2)


MEAN_EMBEDDING = Term(
    "mean_embedding",
    _mean_embedding,
    lambda sizes: (TrainInput("mean_embedding"), TrainInput("global_mean", (sizes.features,))),
    classifies=False,
    embeds=True,
)
"""The distance of a batch's mean embedding from a given mean.

Zhang et al. 2023, Eliminating Domain Bias for Federated Learning in Representation Space, section 4 (mean regularization).

Each batch adds `mean_embedding / (2 F) |m - g|^2`, with the mean m of its F-dimensional embeddings and `global_mean` g.
"""


LOW = -1e9
"""Added to the logit of the true class, so that its probability is 0."""


def _not_true_distillation(step: Step) -> tf.Tensor:
    temperature, classes = step.inputs["not_true_temperature"], step.output.shape[-1]
    others = 1.0 - tf.one_hot(step.labels, classes)
    masked = (1.0 - others) * LOW
    teacher = tf.nn.log_softmax(step.inputs["not_true_logits"] / temperature + masked)
    student = tf.nn.log_softmax(step.logits / temperature + masked)
    divergence = tf.reduce_sum(tf.exp(teacher) * others * (teacher - student), -1)
    return step.inputs["not_true_distillation"] * temperature**2 * divergence


NOT_TRUE_DISTILLATION = Term(
    "not_true_distillation",
    _not_true_distillation,
    lambda sizes: (
        TrainInput("not_true_distillation"),
        TrainInput("not_true_temperature", default=1.0),
        TrainInput("not_true_logits", (None, sizes.classes)),
    ),
)
"""Distillation over the classes other than the true one.

Lee et al. 2022, Preservation of the Global Knowledge by Not-True Distillation in Federated Learning, equation 4.

Each example adds `not_true_distillation T^2 KL(q_t || q_z)`. q is the softmax at temperature T (`not_true_temperature`)
over all classes except the label, of `not_true_logits` t or of the model's logits z.
"""


def _prototypes(step: Step) -> tf.Tensor:
    classes = tf.one_hot(step.labels, step.output.shape[-1])
    own = tf.matmul(classes, step.inputs["class_prototypes"])
    known = tf.reduce_sum(classes * step.inputs["known_prototypes"], -1)
    return step.inputs["prototypes"] * known * tf.reduce_sum((step.embedding - own) ** 2, -1)


PROTOTYPES = Term(
    "prototypes",
    _prototypes,
    lambda sizes: (
        TrainInput("prototypes"),
        TrainInput("class_prototypes", (sizes.classes, sizes.features)),
        TrainInput("known_prototypes", (sizes.classes,)),
    ),
    embeds=True,
)
"""The distance of embeddings from class prototypes.

Tan et al. 2022, FedProto: Federated Prototype Learning across Heterogeneous Clients, equation 7.

Each example adds `prototypes |h - p_y|^2`, with its embedding h and the row p_y of `class_prototypes` for its label y.
Examples of classes with `known_prototypes` 0 add nothing.
"""
