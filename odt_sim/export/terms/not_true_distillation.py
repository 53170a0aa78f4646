"""Distillation over the classes other than the true one.

Lee et al. 2022, Preservation of the Global Knowledge by Not-True Distillation in Federated Learning, equation 4.

Each example adds `not_true_distillation T^2 KL(q_t || q_z)`. q is the softmax at temperature T (`not_true_temperature`)
over all classes except the label, of `not_true_logits` t or of the model's logits z.
"""

import tensorflow as tf

from odt_sim.export.terms.term import Sizes, Step, Term
from odt_sim.model.manifest import TrainInput

LOW = -1e9
"""Added to the logit of the true class, so that its probability is 0."""


def _inputs(sizes: Sizes) -> tuple[TrainInput, ...]:
    return (
        TrainInput("not_true_distillation"),
        TrainInput("not_true_temperature", default=1.0),
        TrainInput("not_true_logits", (None, sizes.classes)),
    )


def _loss(step: Step) -> tf.Tensor:
    temperature, classes = step.inputs["not_true_temperature"], step.output.shape[-1]
    others = 1.0 - tf.one_hot(step.labels, classes)
    masked = (1.0 - others) * LOW
    teacher = tf.nn.log_softmax(step.inputs["not_true_logits"] / temperature + masked)
    student = tf.nn.log_softmax(step.logits / temperature + masked)
    divergence = tf.reduce_sum(tf.exp(teacher) * others * (teacher - student), -1)
    return step.inputs["not_true_distillation"] * temperature**2 * divergence


NOT_TRUE_DISTILLATION = Term("not_true_distillation", _loss, _inputs)
