"""Random numbers of distributions other than uniform in [0, 1), from the generator in `random`.

Normal numbers and integers equal TensorFlow's. Truncated normal numbers, gamma numbers and categories have TensorFlow's
distributions but other values, because TensorFlow draws again until a number is accepted, or draws in float64.
"""

from math import erf, pi, sqrt

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.open_batch import Sizes
from odt_sim.export.lowering.random import PHILOX, drawn, fractions, key_and_counter
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers, tensor_of
from odt_sim.export.lowering.special_functions import erfinv

ATTEMPTS = 6
"""The number of candidates for a gamma number; each is rejected with a probability below 0.05."""

TRUNCATION = 2.0  # standard deviations

OTHER_NUMBERS = frozenset({"StatelessTruncatedNormalV2", "StatelessMultinomial", "StatelessRandomGammaV3"})
"""Op types whose lowering draws other numbers than TensorFlow, of the same distribution."""


@lowers("StatelessRandomNormalV2", deferred=True)
def normal(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute normal numbers in pairs, r sin t and r cos t with r = sqrt(-2 log u) and t = 2 pi v, from uniform u and v.

    G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates", 1958.
    """
    return [drawn(inputs, fractions, _normal)]


def _normal(uniform: tf.Tensor) -> tf.Tensor:
    u, v = tf.unstack(reshaped(uniform, [-1, 2]), axis=1)
    radius, angle = tf.sqrt(-2.0 * tf.math.log(tf.maximum(u, 1e-7))), 2.0 * pi * v
    return reshaped(tf.stack([radius * tf.sin(angle), radius * tf.cos(angle)], 1), [-1])


@lowers("StatelessTruncatedNormalV2", deferred=True)
def truncated_normal(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute normal numbers between -2 and 2 as sqrt(2) erfinv(erf(sqrt 2) (2u - 1)) from uniform u."""

    def numbers(words: tf.Tensor) -> tf.Tensor:
        centered = 2.0 * fractions(words) - (1.0 - 2.0**-23)
        return sqrt(2.0) * erfinv(erf(TRUNCATION / sqrt(2.0)) * centered)

    return [drawn(inputs, numbers)]


@lowers("StatelessRandomUniformIntV2", deferred=True)
def integers(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute integers lowest + W mod (limit - lowest) for words W of 32 bits, or of 64 bits for int64."""
    lowest, limit = (tf.cast(tensor_of(t), tf.int64) for t in inputs[4:])
    kind = op.outputs[0].dtype
    if kind not in (tf.int32, tf.int64):
        raise Refusal(f"draws numbers of {kind.name}; draw int32")

    def numbers(words: tf.Tensor) -> tf.Tensor:
        span = limit - lowest
        if kind == tf.int32:
            return tf.cast(lowest + _unsigned(words) % span, kind)
        low, high = map(_unsigned, tf.unstack(reshaped(words, [-1, 2]), axis=1))
        return lowest + ((high % span) * (2**32 % span) + low % span) % span

    return [drawn(inputs[:4], tf.identity, numbers, kind.size // 4)]


def _unsigned(words: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitcast(words, tf.uint32), tf.int64)


@lowers("StatelessRandomUniformFullIntV2", deferred=True)
def words(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Return the generator's words."""
    if op.outputs[0].dtype != tf.int32:
        raise Refusal(f"draws numbers of {op.outputs[0].dtype.name}; draw int32")
    return [drawn(inputs, tf.identity)]


@lowers("StatelessMultinomial", deferred=True)
def categories(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute categories as argmax(Z - log(-log u)) for logits Z and uniform u, one per sample and class.

    E. J. Gumbel, "Statistical theory of extreme values and some practical applications", 1954.
    """
    logits, samples, seed = (tensor_of(value) for value in inputs)
    count, classes = int(known(samples)), logits.shape[-1]
    if logits.shape[0] is None:
        raise Refusal("takes a fixed number of rows; give a batch size")
    key, counter = key_and_counter(op, [seed], memo)
    u = drawn([tf.constant([logits.shape[0], count, classes]), key, counter, tf.constant(PHILOX)], _open_unit)
    noise = -tf.math.log(-tf.math.log(u))
    return [tf.argmax(logits[:, tf.newaxis] + noise, -1, op.outputs[0].dtype)]


def _open_unit(words: tf.Tensor) -> tf.Tensor:
    """Return numbers strictly between 0 and 1."""
    return fractions(words) + 2.0**-24


@lowers("StatelessRandomGammaV3", deferred=True)
def gamma(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute gamma numbers d (1 + c n)^3, d = a - 1/3, c = 1 / sqrt(9 d), for normal n: the first accepted candidate.

    For a < 1, the number for a + 1 is multiplied by u^(1/a). G. Marsaglia and W. W. Tsang, "A simple method for generating
    gamma variables", 2000. If none of six candidates is accepted (once in 10^8), the number is d.
    """
    shape, key, counter, algorithm, alpha = inputs
    if isinstance(shape, Sizes):
        raise Refusal("takes a fixed number of rows; give a batch size")
    sizes = [int(n) for n in known(tensor_of(shape))]
    alpha = tensor_of(alpha) + tf.zeros(sizes)
    draw = [tf.constant([2 * ATTEMPTS + 2, *sizes]), key, counter, algorithm]
    u = tf.unstack(drawn(draw, _open_unit))
    n = tf.unstack(drawn([tf.constant([ATTEMPTS, *sizes]), tensor_of(key) + 1, counter, algorithm], fractions, _normal))
    d = tf.where(alpha < 1.0, alpha + 1.0, alpha) - 1.0 / 3.0
    value = d
    for normal_number, uniform_number in reversed(list(zip(n, u[:ATTEMPTS], strict=True))):
        v = tf.maximum(1.0 + normal_number / tf.sqrt(9.0 * d), 0.0) ** 3
        log_v = tf.math.log(tf.maximum(v, 1e-30))
        bound = 0.5 * tf.square(normal_number) + d * (1.0 - v + log_v)
        accepted = tf.logical_and(v > 0.0, tf.math.log(uniform_number) < bound)
        value = tf.where(accepted, d * v, value)
    return [tf.where(alpha < 1.0, value * u[-1] ** (1.0 / alpha), value)]
