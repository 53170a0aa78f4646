"""ATen ops that multiply matrices: linear layers, attention, embeddings."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.torch.registry import Refusal, computes, expect


@computes("linear")
def linear(x: tf.Tensor, weight: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
    """Return `x weight^T + bias`."""
    rows = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), weight, transpose_b=True)
    rows = rows if bias is None else rows + bias
    return rows if len(x.shape) == 2 else tf.reshape(rows, [*x.shape[:-1], weight.shape[0]])


@computes("addmm")
def addmm(bias: tf.Tensor, x: tf.Tensor, y: tf.Tensor, *, beta: float = 1, alpha: float = 1) -> tf.Tensor:
    """Return `beta bias + alpha x y`."""
    product = tf.matmul(x, y)
    return (bias if beta == 1 else beta * bias) + (product if alpha == 1 else alpha * product)


@computes("matmul", "mm", "bmm", "mv", "dot", "vdot")
def matmul(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the product of matrices or vectors."""
    left, right = len(x.shape) == 1, len(y.shape) == 1
    product = tf.matmul(x[None] if left else x, y[:, None] if right else y)
    product = tf.squeeze(product, -1) if right else product
    return tf.squeeze(product, -1 if right else -2) if left else product


@computes("einsum")
def einsum(equation: str, tensors: Sequence[tf.Tensor], **_: Any) -> tf.Tensor:
    """Return the Einstein sum; complex sums are computed from the real and imaginary parts."""
    if all(x.dtype != tf.complex64 for x in tensors):
        return tf.einsum(equation, *tensors)
    if len(tensors) != 2:
        raise Refusal("sums products of more or fewer than two complex tensors; write one product after the other")
    (real, imaginary), (other, turned) = [(tf.math.real(x), tf.math.imag(x)) for x in tensors]
    return tf.complex(
        tf.einsum(equation, real, other) - tf.einsum(equation, imaginary, turned),
        tf.einsum(equation, real, turned) + tf.einsum(equation, imaginary, other),
    )


@computes("bilinear")
def bilinear(x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
    """Return `x^T weight_k y + bias_k`."""
    filters, left, right = weight.shape
    rows = tf.reshape(x, [-1, left]) @ tf.reshape(tf.transpose(weight, [1, 0, 2]), [left, filters * right])
    product = tf.reduce_sum(tf.reshape(rows, [*x.shape[:-1], filters, right]) * y[..., None, :], axis=-1)
    return product if bias is None else product + bias


@computes("embedding")
def embedding(
    weight: tf.Tensor, index: tf.Tensor, padding: int = -1, scale_by_frequency: bool = False, sparse: bool = False
) -> tf.Tensor:
    """Return rows by index; the padding row gets no gradient."""
    expect("scale_grad_by_freq", scale_by_frequency, False)
    if padding >= 0:
        row = tf.one_hot(padding, weight.shape[0], dtype=weight.dtype)[:, None]
        weight = tf.stop_gradient(weight) * row + weight * (1 - row)
    return tf.gather(weight, index)


@computes("embedding_bag")
def embedding_bag(
    weight: tf.Tensor,
    index: tf.Tensor,
    offsets: tf.Tensor,
    scale_by_frequency: bool,
    mode: int,
    sparse: bool,
    shares: tf.Tensor | None = None,
    last_offset: bool = False,
    padding: int | None = None,
) -> tuple[tf.Tensor]:
    """Return the sums, means or maxima of bags of rows, which must have the same length; padding does not count."""
    starts = tf.get_static_value(offsets)
    ends = None if starts is None else starts[1:].tolist() if last_offset else [*starts[1:], index.shape[0]]
    starts = starts if starts is None or not last_offset else starts[:-1]
    if scale_by_frequency or starts is None or len({*(np.array(ends) - starts)}) != 1:
        raise Refusal(
            "has bags of different lengths; pass indices `[rows, length]`, with padding_idx after the shorter ones"
        )
    bags = tf.reshape(index, [len(starts), -1])
    padding = -1 if padding is None else padding
    counts = tf.cast(tf.not_equal(bags, padding), weight.dtype)
    rows = embedding(weight, bags, padding)
    if mode == 2:
        least = tf.where(counts[..., None] > 0, rows, float(tf.float32.min))
        return (tf.reduce_max(least, 1) * tf.reduce_max(counts, 1, keepdims=True),)
    factors = counts if shares is None else counts * tf.reshape(shares, bags.shape)
    summed = tf.reduce_sum(rows * factors[..., None], 1)
    return (summed / tf.maximum(tf.reduce_sum(counts, 1, keepdims=True), 1.0) if mode == 1 else summed,)


def attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    mask: tf.Tensor | None = None,
    rate: float = 0.0,
    causal: bool = False,
    *,
    dropout: Callable[[tf.Tensor, float], tf.Tensor],
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tf.Tensor:
    """Return `dropout(softmax(scale query key^T + mask), rate) value` (arXiv:1706.03762).

    Args:
        query: `[..., heads, positions, size]`.
        key: The keys, with as many heads, or with fewer if `enable_gqa`, each for consecutive heads of the query
            (arXiv:2305.13245).
        value: The values, with as many heads as `key`.
        mask: Booleans, True at positions that may be attended to, or numbers that are added to the scores.
        rate: The dropout rate.
        causal: Whether a position only attends to positions up to itself.
        dropout: The function that applies dropout.
        scale: The factor of the scores; None for `1 / sqrt(size)`.
        enable_gqa: Whether keys and values have fewer heads than the query.
    """
    if enable_gqa:
        key, value = (tf.repeat(x, query.shape[-3] // x.shape[-3], axis=len(x.shape) - 3) for x in (key, value))
    scores = tf.matmul(query, key, transpose_b=True) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if causal:
        mask = tf.constant(True) & (tf.range(scores.shape[-2])[:, None] >= tf.range(scores.shape[-1])[None])
    if mask is None:
        return tf.matmul(dropout(tf.nn.softmax(scores), rate), value)
    if mask.dtype == tf.bool:
        scores = tf.where(mask, scores, tf.constant(float(tf.float32.min)))
    else:
        scores = scores + tf.maximum(mask, float(tf.float32.min) / 2)  # LiteRT's softmax of infinite logits is NaN
        mask = mask > -math.inf
    shares = tf.nn.softmax(scores)
    if not causal:  # a position that may attend to nothing gets 0
        shares = tf.where(tf.reduce_any(mask, -1, keepdims=True), shares, tf.zeros_like(shares))
    return tf.matmul(dropout(shares, rate), value)
