"""A cross-entropy of shifted logits, for losses calibrated by class frequencies.

With the input `logit_shift` s, `[classes]`, the loss is computed from the logits `z + s`: `log p_s(y)` of the shifted
logits replaces `log p(y)`. With `s = log n_c`, this is the balanced softmax of Ren et al. 2020; with `s = -tau n_c^(-1/4)`,
the calibrated loss of Zhang et al. 2022.
"""

import tensorflow as tf

from odt_sim.export.terms.term import Sizes, Step, Term
from odt_sim.model.manifest import TrainInput


def _inputs(sizes: Sizes) -> tuple[TrainInput, ...]:
    return (TrainInput("logit_shift", (sizes.classes,)),)


def _loss(step: Step) -> tf.Tensor:
    classes = tf.one_hot(step.labels, step.output.shape[-1])
    shifted = tf.nn.log_softmax(step.logits + step.inputs["logit_shift"])
    return tf.reduce_sum(classes * (tf.nn.log_softmax(step.logits) - shifted), -1)


LOGIT_SHIFT = Term("logit_shift", _loss, _inputs)
