"""Connectionist temporal classification without TensorFlow's loops, which LiteRT lacks.

Paper: Graves et al. 2006, Connectionist Temporal Classification: Labelling Unsegmented Sequence Data with Recurrent Neural
Networks; here with the logarithms of its forward and backward variables.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import tensorflow as tf

NEVER = -1e30
"""The value that replaces log(0), so that sums and differences stay finite."""


def ctc(y: Any, logits: Any) -> tf.Tensor:
    """Return each example's loss as `keras.losses.ctc`: the negative logarithm of the probability of its labels.

    Args:
        y: `[batch, labels]`: the classes in order, padded with zeros at the end; 0 is the blank.
        logits: `[batch, frames, classes]`, with fixed numbers of frames and labels.

    Returns:
        `[batch]` float32; infinite, with a gradient of 0, if there are fewer frames than the labels and the blanks between
        equal labels need.
    """
    loss: tf.Tensor = tf.custom_gradient(_loss)(tf.cast(y, tf.int32), logits)
    return loss


def _loss(y: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[None, tf.Tensor]]]:
    """Return the loss and its gradient function, by one recursion over the frames for both directions."""
    states = tf.one_hot(_states(y), logits.shape[-1])
    emission = tf.matmul(tf.nn.log_softmax(logits), states, transpose_b=True)
    jumps, last = _jumps(y), _last(y)
    first = tf.ones_like(last) * [1.0, 1.0, *[0.0] * (last.shape[1] - 2)]
    # Backward variables are the forward variables of the reversed sequence, where a jump begins at its former end.
    back = tf.pad(tf.reverse(jumps, [1]), [[0, 0], [2, 0]])[:, :-2]
    both = _scores(
        tf.concat([emission, tf.reverse(emission, [1, 2])], 0),
        tf.concat([first, tf.reverse(last, [1])], 0),
        tf.concat([jumps, back], 0),
    )
    forward, backward = tf.split(both, 2)
    total = tf.reduce_logsumexp(forward[:, -1] + _logarithm(last), 1)
    possible = tf.cast(total > NEVER / 2, tf.float32)

    def gradient(upstream: tf.Tensor) -> tuple[None, tf.Tensor]:
        # The sum over the states of each frame is the total; dividing by this sum is exact even if its logarithm is large.
        path = tf.nn.softmax(forward + tf.reverse(backward, [1, 2]) - emission)
        occupied = tf.matmul(path, states)
        return None, (upstream * possible)[:, tf.newaxis, tf.newaxis] * (tf.nn.softmax(logits) - occupied)

    return tf.where(possible > 0, -total, float("inf")), gradient


def _states(labels: tf.Tensor) -> tf.Tensor:
    """Return values of labels, `[batch, labels]`, with a 0 for each blank around them, `[batch, 2 labels + 1]`."""
    pairs = tf.stack([tf.zeros_like(labels), labels], 2)
    return tf.pad(tf.reshape(pairs, [-1, 2 * labels.shape[1]]), [[0, 0], [0, 1]])


def _jumps(y: tf.Tensor) -> tf.Tensor:
    """Return 1 for states that may follow the state two before, `[batch, states]`: labels after a different label."""
    return _states(tf.pad(tf.cast(y[:, 1:] != y[:, :-1], tf.float32), [[0, 0], [1, 0]]))


def _last(y: tf.Tensor) -> tf.Tensor:
    """Return 1 for states in which a path may end, `[batch, states]`: the last label, and the blank after it."""
    end = 2 * tf.reduce_sum(tf.cast(y != 0, tf.int32), 1)
    return tf.one_hot(end, 2 * y.shape[1] + 1) + tf.one_hot(end - 1, 2 * y.shape[1] + 1)


def _logarithm(allowed: tf.Tensor) -> tf.Tensor:
    """Return the logarithms of ones and zeros."""
    return (1.0 - allowed) * NEVER


def _scores(emission: tf.Tensor, first: tf.Tensor, jumps: tf.Tensor) -> tf.Tensor:
    """Return the logarithms of the forward variables, `[batch, frames, states]`.

    Args:
        emission: The logarithm of the probability of each state's class, `[batch, frames, states]`.
        first: 1 for states in which a path may begin, `[batch, states]`.
        jumps: 1 for states that may follow the state two before, `[batch, states]`.
    """
    first_frame, *frames = tf.unstack(emission, axis=1)
    scores, barred = [_logarithm(first) + first_frame], _logarithm(jumps)
    for frame in frames:
        padded = tf.pad(scores[-1], [[0, 0], [2, 0]], constant_values=NEVER)
        ways = [scores[-1], padded[:, 1:-1], padded[:, :-2] + barred]
        best = reduce(tf.maximum, ways)
        scores.append(best + tf.math.log(tf.add_n([tf.exp(way - best) for way in ways])) + frame)
    return tf.stack(scores, 1)
