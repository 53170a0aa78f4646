"""Cross-entropy of a softmax; the traced ops give the loss and its gradient at once."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Value, lowers


def _cross_entropy(logits: tf.Tensor, target: tf.Tensor) -> list[tf.Tensor]:
    return [-tf.reduce_sum(target * tf.nn.log_softmax(logits), -1), tf.nn.softmax(logits) - target]


@lowers("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes loss = -log softmax(Z)[y], dZ = softmax(Z) - onehot(y)."""
    logits, labels = inputs
    return _cross_entropy(logits, tf.one_hot(labels, logits.shape[-1]))


@lowers("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes loss = -sum(Y log softmax(Z)), dZ = softmax(Z) - Y."""
    logits, target = inputs
    return _cross_entropy(logits, target)
