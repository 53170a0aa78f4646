"""Knowledge distillation (Hinton et al. 2015, Distilling the Knowledge in a Neural Network, section 2).

Each example adds `distillation v T^2 KL(softmax(t / T) || softmax(z / T))`, with the model's logits z, `teacher_logits` t,
`distillation_temperature` T and the example's `distillation_weight` v.
"""

import tensorflow as tf

from odt_sim.export.terms.term import Sizes, Step, Term
from odt_sim.model.manifest import TrainInput


def _inputs(sizes: Sizes) -> tuple[TrainInput, ...]:
    return (
        TrainInput("distillation"),
        TrainInput("distillation_temperature", default=1.0),
        TrainInput("distillation_weight", (None,), default=1.0),
        TrainInput("teacher_logits", (None, sizes.classes)),
    )


def _loss(step: Step) -> tf.Tensor:
    temperature = step.inputs["distillation_temperature"]
    teacher = tf.nn.log_softmax(step.inputs["teacher_logits"] / temperature)
    student = tf.nn.log_softmax(step.logits / temperature)
    divergence = tf.reduce_sum(tf.exp(teacher) * (teacher - student), -1)
    return step.inputs["distillation"] * step.inputs["distillation_weight"] * temperature**2 * divergence


DISTILLATION = Term("distillation", _loss, _inputs)
