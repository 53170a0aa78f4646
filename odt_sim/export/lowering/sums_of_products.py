"""Einsums: TFLite's converter supports sums of products of two tensors; diagonals and sums of one tensor are lowered.

An equation such as `bii,jk->b` becomes the diagonal of the first tensor, the sum over j and k of the second, and `bi,->b`.
"""

from collections import Counter
from string import ascii_letters

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.constant_folding import copied
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.reduction import sum_over
from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers


@lowers("Einsum")
def einsum(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the sums of products along the labels of an equation."""
    equation = op.get_attr("equation").decode()
    left, _, result = equation.partition("->")
    labels = left.split(",")
    if _elementwise(labels, result):
        return [_product(inputs, labels, result)]
    if _usual(labels, result):
        return copied(op, inputs)
    labels, result = _without_dots(labels, result, [len(x.shape) for x in inputs])
    parts = [_simple(x, own, labels, i, result) for i, (x, own) in enumerate(zip(inputs, labels, strict=True))]
    unique = "".join(dict.fromkeys(result))
    if len(parts) == 1:
        x, own = parts[0]
        y = tf.transpose(x, [own.index(label) for label in unique])
    else:
        (a, first), (b, second) = parts
        y = tf.raw_ops.Einsum(inputs=[a, b], equation=f"{first},{second}->{unique}")
    return [_inflated(y, result)]


def _elementwise(labels: list[str], result: str) -> bool:
    """Return whether an equation multiplies two tensors element by element, as `btw,tw->btw` and `btw,btw->tw` do.

    The converter would compute a matrix product for each element.
    """
    if len(labels) != 2 or any(set(own) - set(ascii_letters) or len(set(own)) < len(own) for own in [*labels, result]):
        return False
    first, second = map(set, labels)
    return first == second or (first | second == set(result) and (first <= second or second <= first))


def _product(inputs: list[tf.Tensor], labels: list[str], result: str) -> tf.Tensor:
    """Return the product of two tensors along their labels, summed over the labels that are not in the result."""
    (b, second), (a, first) = sorted(zip(inputs, labels, strict=True), key=lambda pair: len(pair[1]))
    b = tf.transpose(b, [second.index(label) for label in first if label in second])
    for axis, label in enumerate(first):
        b = b if label in second else tf.expand_dims(b, axis)
    y = a * b
    kept = [label for label in first if label in result]
    if len(kept) < len(first):
        sizes = [-1 if size is None else size for size, label in zip(y.shape, first, strict=True) if label in result]
        y = reshaped(sum_over(y, {axis for axis, label in enumerate(first) if label not in result}), sizes)
    return tf.transpose(y, [kept.index(label) for label in result])


def _usual(labels: list[str], result: str) -> bool:
    """Return whether the converter supports an equation: of two tensors, without diagonals and sums of only one tensor."""
    names = [own.replace("...", ".") for own in [*labels, result]]
    if len(labels) != 2 or any(max(Counter(own).values(), default=1) > 1 for own in names):
        return False
    first, second, last = map(set, names)
    return first <= second | last and second <= first | last


def _without_dots(labels: list[str], result: str, ranks: list[int]) -> tuple[list[str], str]:
    """Return an equation with letters instead of the dots."""
    free = [letter for letter in ascii_letters if letter not in "".join([*labels, result])]
    counts = [rank - len(own.replace("...", "")) for own, rank in zip(labels, ranks, strict=True) if "..." in own]
    if len(set(counts)) > 1:
        raise Refusal(f"has different numbers of axes for the ellipses in {','.join(labels)}; write letters")
    dots = "".join(free[: counts[0]]) if counts else ""
    return [own.replace("...", dots) for own in labels], result.replace("...", dots)


def _simple(x: tf.Tensor, own: str, labels: list[str], place: int, result: str) -> tuple[tf.Tensor, str]:
    """Return a tensor with each of its labels once, without labels that are in neither the result nor the other tensor."""
    while repeated := next((label for label, n in Counter(own).items() if n > 1), None):
        first, second = [i for i, label in enumerate(own) if label == repeated][:2]
        rest = [i for i in range(len(own)) if i not in (first, second)]
        x, own = _diagonal(tf.transpose(x, [*rest, first, second])), "".join(own[i] for i in rest) + repeated
    others = set(result).union(*(set(one) for i, one in enumerate(labels) if i != place))
    lone = [i for i, label in enumerate(own) if label not in others]
    return tf.reduce_sum(x, lone) if lone else x, "".join(label for label in own if label in others)


def _diagonal(x: tf.Tensor) -> tf.Tensor:
    """Return the diagonals of matrices `[..., n, n]`."""
    size = x.shape[-1]
    shape = [-1 if n is None else n for n in x.shape[:-2]]
    return tf.gather(reshaped(x, [*shape, size * size]), np.arange(size) * (size + 1), axis=-1)


def _inflated(y: tf.Tensor, result: str) -> tf.Tensor:
    """Return a tensor with an axis for each repeated label, and zeros off the diagonals."""
    unique = list(dict.fromkeys(result))
    sizes = {label: -1 if size is None else size for label, size in zip(unique, y.shape, strict=True)}
    if len(unique) == len(result):
        return y
    first = [result.index(label) == i for i, label in enumerate(result)]
    y = reshaped(y, [sizes[label] if own else 1 for label, own in zip(result, first, strict=True)])
    for i, label in enumerate(result):
        if not first[i]:
            shape = [sizes[label] if j in (i, result.index(label)) else 1 for j in range(len(result))]
            y = y * tf.constant(np.eye(sizes[label], dtype=np.float32).reshape(shape))
    return y
