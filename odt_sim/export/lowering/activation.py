"""Activation functions without a TFLite op, gradients of activations, and softmax cross-entropy."""

import tensorflow as tf

from odt_sim.export.lowering.image_rows import elementwise
from odt_sim.export.lowering.late import recomputed, zero_after
from odt_sim.export.lowering.pooling import positive
from odt_sim.export.lowering.registry import Memo, Value, computes, lowers


@lowers("Relu6Grad")
def relu6_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY if 0 < Y < 6, that is Y (6 - Y) > 0, else 0."""
    gradient, y = inputs
    y = y if op.inputs[1].op.type == "Relu6" else elementwise(tf.nn.relu6, y)
    y = recomputed(y, gradient, memo)
    return [elementwise(lambda dy, y, six: dy * positive(y * (six - y)), gradient, y, zero_after(gradient) + 6.0)]


@lowers("LeakyReluGrad")
def leaky_relu_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = dY if X > 0, else alpha dY."""
    gradient, x = inputs
    alpha = op.get_attr("alpha")
    return [gradient * (alpha + (1.0 - alpha) * positive(tf.nn.relu(x)))]


@computes("EluGrad")
def elu_grad(gradient: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Compute dX = dY if Y >= 0, else dY (Y + 1)."""
    return gradient * (1.0 + tf.minimum(y, 0.0))


@computes("TanhGrad")
def tanh_grad(y: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Compute dX = dY (1 - Y^2)."""
    return gradient * (1.0 - y * y)


@computes("SigmoidGrad")
def sigmoid_grad(y: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Compute dX = dY Y (1 - Y)."""
    return gradient * y * (1.0 - y)


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772  # Klambauer et al., arXiv:1706.02515


@computes("Selu")
def selu(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = scale X if X > 0, else scale alpha (e^X - 1)."""
    return SELU_SCALE * (tf.nn.relu(x) + SELU_ALPHA * (tf.exp(tf.minimum(x, 0.0)) - 1.0))


@computes("SeluGrad")
def selu_grad(gradient: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Compute dX = dY scale if Y >= 0, else dY (Y + scale alpha)."""
    below = tf.minimum(y, 0.0)
    return gradient * (SELU_SCALE + positive(-below) * (below + SELU_SCALE * (SELU_ALPHA - 1.0)))


@computes("Softplus")
def softplus(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = log(1 + e^X) as max(X, 0) + log(1 + e^-|X|), which does not overflow."""
    return tf.nn.relu(x) + tf.math.log(1.0 + tf.exp(-tf.abs(x)))


@computes("SoftplusGrad")
def softplus_grad(gradient: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Compute dX = dY sigmoid(X)."""
    return gradient * tf.sigmoid(x)


@computes("Softsign")
def softsign(x: tf.Tensor) -> tf.Tensor:
    """Compute Y = X / (1 + |X|)."""
    return x / (1.0 + tf.abs(x))


@computes("SoftsignGrad")
def softsign_grad(gradient: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Compute dX = dY / (1 + |X|)^2."""
    return gradient / tf.square(1.0 + tf.abs(x))


ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)  # coefficients of t^5 to 1


@lowers("Erf", "Erfc")
def erf(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = erf X, or erfc X = 1 - erf X, to 2e-7.

    erfc |X| = e^(-X^2) p(t) with t = 1 / (1 + 0.3275911 |X|) and a polynomial p: Abramowitz and Stegun, Handbook of
    Mathematical Functions, 7.1.26.
    """
    (x,) = inputs
    t = 1.0 / (1.0 + 0.3275911 * tf.abs(x))
    tail = tf.math.polyval([tf.constant(c) for c in ERFC], t) * tf.exp(-tf.square(x))
    value = tf.sign(x) * (1.0 - tail)
    return [value if op.type == "Erf" else 1.0 - value]


def _cross_entropy(logits: tf.Tensor, target: tf.Tensor) -> list[tf.Tensor]:
    """Return the loss and its gradient by ops that XNNPACK runs; LOG_SOFTMAX takes three times as long as all of them."""
    shifted = logits - tf.reduce_max(logits, -1, keepdims=True)
    powers = tf.exp(shifted)
    total = tf.reduce_sum(powers, -1, keepdims=True)
    return [-tf.reduce_sum(target * (shifted - tf.math.log(total)), -1), powers / total - target]


def _one_hot(labels: tf.Tensor, classes: int | tf.Tensor) -> tf.Tensor:
    """Return 1 for the label's class, else 0, as max(1 - (label - class)^2, 0), which is six times as fast as ONE_HOT."""
    own = tf.expand_dims(tf.cast(uncast(labels), tf.float32), -1)
    return tf.nn.relu(1.0 - tf.math.squared_difference(own, tf.range(classes, dtype=tf.float32)))


def uncast(labels: tf.Tensor) -> tf.Tensor:
    """Return the integer labels from before Keras cast them to float32 and back and possibly reshaped them."""
    op = labels.op
    if op.type == "Reshape":
        return tf.reshape(uncast(op.inputs[0]), op.inputs[1])
    number = op.inputs[0] if op.type == "Cast" else labels
    whole = number.dtype == tf.float32 and number.op.type == "Cast" and number.op.inputs[0].dtype.is_integer
    return number.op.inputs[0] if whole else labels


@lowers("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute loss = -log softmax(Z)[y] and dZ = softmax(Z) - onehot(y)."""
    logits, labels = inputs
    classes = logits.shape[-1] or tf.shape(logits)[-1]  # open if each example of a batch is a class
    return _cross_entropy(logits, _one_hot(labels, classes))


@lowers("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute loss = -sum(Y log softmax(Z)) and dZ = softmax(Z) - Y."""
    logits, target = inputs
    return _cross_entropy(logits, target)
