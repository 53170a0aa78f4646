"""Random numbers from a seed and a counter, identical to TensorFlow's: Philox4x32-10.

J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A round maps the words c0..c3 of a counter and
the key k0, k1 to hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0); the key grows by W0, W1 between rounds.
Here, `even` is (c0, c2) and `odd` is (c1, c3) of all counters, `[2, counters]` int32. A 64-bit product is two int32.
"""

from collections.abc import Callable
from math import erf, pi, prod, sqrt

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.layout.open_batch import Sizes, sizes_of
from odt_sim.export.lowering.ops.creation import known, reshaped
from odt_sim.export.lowering.ops.functions import erfinv
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers, tensor_of

ROUNDS = 10
FACTORS = np.array([[0xD2511F53], [0xCD9E8D57]], np.int64)
KEY_STEPS = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint32).astype(np.int32)
SCRAMBLER = np.array([[0x3EC8F720], [0x02461E29]], np.uint32).astype(np.int32)  # the key of TensorFlow's seed hash
AUTO_SELECT, PHILOX = 3, 1  # TensorFlow's enumeration; equivalent on a CPU


def philox(even: tf.Tensor, odd: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the words of counters after ten rounds.

    Args:
        even: `[2, counters]` int32.
        odd: `[2, counters]` int32.
        key: `[2, 1]` int32.
    """
    for _ in range(ROUNDS):
        wide = tf.cast(tf.bitcast(even, tf.uint32), tf.int64)
        halves = tf.bitcast(wide * FACTORS, tf.int32)  # low half first
        # Slicing without the transpose would take half of the total time.
        low0, low2, high0, high2 = tf.split(reshaped(tf.transpose(halves, [2, 0, 1]), [4, -1]), 4)
        even = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(tf.concat([high2, high0], 0), odd), key)
        odd = tf.concat([low2, low0], 0)
        key = key + KEY_STEPS
    return even, odd


@lowers("StatelessRandomGetKeyCounter")
def key_and_counter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Hash a seed of two numbers: key (m0, m1) and counter (0, 0, m2, m3), where m is the Philox of the seed's 128 bits."""
    (seed,) = inputs
    if seed.dtype != tf.int32:
        raise Refusal("supports only seeds of int32; use those")
    low = reshaped(seed, [2, 1])
    even, odd = philox(low, tf.minimum(tf.sign(low), 0), tf.constant(SCRAMBLER))
    return [tf.concat([even[:1], odd[:1]], 0), tf.concat([even[1:], odd[1:]], 0)]


@lowers("StatelessRandomUniformV2", deferred=True)
def uniform(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute numbers in [0, 1): the low 23 bits of each word over 2^23."""
    return [drawn(inputs, fractions)]


def fractions(words: tf.Tensor) -> tf.Tensor:
    """Return the low 23 bits of words over 2^23, in [0, 1)."""
    top = tf.bitcast(words * 2**9, tf.uint32)  # FLOOR_MOD would call a function for each word
    return tf.cast(top, tf.float32) * 2.0**-32


Each = Callable[[tf.Tensor], tf.Tensor]
"""A function of each element of a tensor, or of groups of neighbouring elements."""


def drawn(inputs: list[Value], of_word: Each, numbers: Each = tf.identity, words_each: int = 1) -> tf.Tensor:
    """Return random numbers of a given shape.

    Args:
        inputs: The shape, the key, the counter and the algorithm of an op.
        of_word: Returns the value of each int32 word; float32 is faster, because XNNPACK then reorders the values.
        numbers: Takes the values of whole groups, `[4 * groups]`, and returns a number for each `words_each` of them.
        words_each: The number of words per random number.
    """
    shape, (key, counter, algorithm) = inputs[0], map(tensor_of, inputs[1:])
    if tf.get_static_value(algorithm) not in (AUTO_SELECT, PHILOX):
        raise Refusal("supports only the algorithm Philox; use that")
    sizes, group = sizes_of(shape), 4 // words_each
    if not isinstance(shape, Sizes):
        values = numbers(_values(tf.range(-(-prod(sizes) // group)), key, counter, of_word))
        return reshaped(values[: prod(sizes)] if prod(sizes) % group else values, sizes)
    each = abs(prod(sizes)) * int(shape.per_row.max())  # if a row ends within a group, numbers are left over
    values = numbers(_values(shape.batch.numbers(-(-each // group)), key, counter, of_word))
    return reshaped(tf.gather(values, shape.batch.numbers(each)) if each % group else values, sizes)


def _values(groups: tf.Tensor, key: tf.Tensor, counter: tf.Tensor, of_word: Each) -> tf.Tensor:
    """Return values of the four words of each group, `[4 * groups]`; a group's number is the counter's low word."""
    low = groups[tf.newaxis]
    zeros = tf.zeros_like(low)
    scalars = [reshaped(word, []) for word in tf.split(counter, 2)]
    rest = [tf.fill(low.shape, n) if low.shape.is_fully_defined() else zeros + n for n in scalars]
    even, odd = tf.concat([low, rest[0]], 0), tf.concat([zeros, rest[1]], 0)
    values = of_word(tf.concat(philox(even, odd, key), 0))
    return reshaped(tf.transpose(reshaped(values, [2, 2, -1])), [-1])


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
