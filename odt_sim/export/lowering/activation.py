"""Activation functions that TFLite has no op of its own for, and the gradients of all."""

import tensorflow as tf

from odt_sim.export.lowering.pooling import positive
from odt_sim.export.lowering.registry import Memo, Value, lowers


@lowers("Relu6Grad")
def relu6_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: dY where 0 < Y < 6, which is where Y (6 - Y) > 0, else 0."""
    gradient, y = inputs
    y = y if op.inputs[1].op.type == "Relu6" else tf.nn.relu6(y)
    return [gradient * positive(y * (6.0 - y))]


@lowers("LeakyReluGrad")
def leaky_relu_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: dY where X > 0, else alpha dY."""
    gradient, x = inputs
    alpha = op.get_attr("alpha")
    return [gradient * (alpha + (1.0 - alpha) * positive(tf.nn.relu(x)))]


@lowers("EluGrad")
def elu_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: dY where Y >= 0, else dY (Y + 1)."""
    gradient, y = inputs
    return [gradient * (1.0 + tf.minimum(y, 0.0))]


@lowers("TanhGrad")
def tanh_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = dY (1 - Y^2)."""
    y, gradient = inputs
    return [gradient * (1.0 - y * y)]


@lowers("SigmoidGrad")
def sigmoid_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = dY Y (1 - Y)."""
    y, gradient = inputs
    return [gradient * y * (1.0 - y)]


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772  # of Klambauer et al., arXiv:1706.02515


@lowers("Selu")
def selu(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = scale X where X > 0, else scale alpha (e^X - 1)."""
    (x,) = inputs
    return [SELU_SCALE * (tf.nn.relu(x) + SELU_ALPHA * (tf.exp(tf.minimum(x, 0.0)) - 1.0))]


@lowers("SeluGrad")
def selu_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: dY scale where Y >= 0, else dY (Y + scale alpha)."""
    gradient, y = inputs
    below = tf.minimum(y, 0.0)
    return [gradient * (SELU_SCALE + positive(-below) * (below + SELU_SCALE * (SELU_ALPHA - 1.0)))]


@lowers("Softplus")
def softplus(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = log(1 + e^X), as max(X, 0) + log(1 + e^-|X|), which does not overflow."""
    (x,) = inputs
    return [tf.nn.relu(x) + tf.math.log(1.0 + tf.exp(-tf.abs(x)))]


@lowers("SoftplusGrad")
def softplus_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = dY sigmoid(X)."""
    gradient, x = inputs
    return [gradient * tf.sigmoid(x)]


@lowers("Softsign")
def softsign(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = X / (1 + |X|)."""
    (x,) = inputs
    return [x / (1.0 + tf.abs(x))]


@lowers("SoftsignGrad")
def softsign_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX = dY / (1 + |X|)^2."""
    gradient, x = inputs
    return [gradient / tf.square(1.0 + tf.abs(x))]


ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)  # from t^5 down to 1


@lowers("Erf", "Erfc")
def erf(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y = erf X, or erfc X = 1 - erf X, to 2e-7.

    erfc |X| = e^(-X^2) p(t) with t = 1 / (1 + 0.3275911 |X|) and a polynomial p: Abramowitz and Stegun, Handbook of
    Mathematical Functions, 7.1.26.
    """
    (x,) = inputs
    t = 1.0 / (1.0 + 0.3275911 * tf.abs(x))
    tail = tf.math.polyval([tf.constant(c) for c in ERFC], t) * tf.exp(-tf.square(x))
    value = tf.sign(x) * (1.0 - tail)
    return [value if op.type == "Erf" else 1.0 - value]


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
