"""Matrix products at rank 3, products of int8 tensors, and einsums.

Each time step of a recurrent layer multiplies its inputs by the same kernel, and adds its part to the kernel's
gradient: independent products of an unrolled loop's iterations become one product (a GRU: 0.86 of the time).

An einsum is computed by diagonals and sums of single tensors and batch products of two: `bii,jk->b` becomes the
diagonal of the first tensor, the sum over j and k of the second, and `bi,->b`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from string import ascii_letters

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.layout.windows import sum_of
from odt_sim.export.lowering.ops.creation import reshaped
from odt_sim.export.lowering.ops.reduction import sum_over
from odt_sim.export.lowering.registry import Deferred, Memo, Refusal, Value, lowers, tensor_of


@dataclass(frozen=True, eq=False)
class Product(Deferred):
    """A product of two matrices, or of their transposes, which may become a part of a larger product."""

    a: tf.Tensor
    b: tf.Tensor
    transpose_a: bool = False
    transpose_b: bool = False

    def tensor(self) -> tf.Tensor:
        """Compute the product at rank 3.

        At rank 2, the converter uses FULLY_CONNECTED, which is slow with variable weights, and loses a ReLU or a clip right
        after it.
        """
        a, b = tf.expand_dims(self.a, 0), tf.expand_dims(self.b, 0)
        return tf.squeeze(tf.matmul(a, b, transpose_a=self.transpose_a, transpose_b=self.transpose_b), 0)


@lowers("MatMul")
def matmul(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute C = A B."""
    a, b = inputs
    own = Product(a, b, op.get_attr("transpose_a"), op.get_attr("transpose_b"))
    if _multiplies_each_part(op) and own.a.op.type == "Unpack":
        return [_product_of_whole(own, memo)[own.a.value_index]]
    users = {user.type for user in op.outputs[0].consumers()}
    deferred = users == ({"AddN"} if own.transpose_a else {"Pack"}) and own.a.dtype == tf.float32
    return [own if deferred else own.tensor()]


@lowers("BatchMatMulV2")
def batch_matmul(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute C[i] = A[i] B[i] for the leading axes i, which broadcast."""
    a, b = inputs
    adjoint_a, adjoint_b = op.get_attr("adj_x"), op.get_attr("adj_y")
    if len(a.shape) == len(b.shape) == 2:
        return [Product(a, b, adjoint_a, adjoint_b).tensor()]
    return [tf.matmul(a, b, adjoint_a=adjoint_a, adjoint_b=adjoint_b)]


@lowers("AddN", deferred=True)
def add_n(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the sum of the inputs; by one product if all are A^T B, for several A and B."""
    products = [own for own in inputs if isinstance(own, Product) and own.transpose_a and not own.transpose_b]
    if len(products) < max(2, len(inputs)):
        return [sum_of([tensor_of(own) for own in inputs])]
    products.reverse()  # a gradient starts with the last time step, whose rows come last in the input
    a, b = (_joined(parts, memo) for parts in ([own.a for own in products], [own.b for own in products]))
    return [Product(a, b, transpose_a=True).tensor()]


@lowers("Pack", deferred=True)
def pack(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Stack the inputs along a new axis; products A B of several A and one B become one product."""
    axis = op.get_attr("axis")
    kernels = {(own.b.ref(), own.transpose_b) for own in inputs if isinstance(own, Product) and not own.transpose_a}
    if axis != 0 or len(kernels) != 1 or not all(isinstance(own, Product) and not own.transpose_a for own in inputs):
        return [tf.stack([tensor_of(own) for own in inputs], axis)]
    rows = _joined([own.a for own in inputs], memo)
    product = Product(rows, inputs[0].b, transpose_b=inputs[0].transpose_b).tensor()
    return [reshaped(product, [len(inputs), -1, product.shape[1]])]


def _joined(parts: Sequence[tf.Tensor], memo: Memo) -> tf.Tensor:
    """Return the rows of several matrices as one matrix, memoized."""
    key = ("rows", *(own.ref() for own in parts))
    if key not in memo:
        memo[key] = tf.concat(parts, 0)
    return memo[key]


def _multiplies_each_part(op: tf.Operation) -> bool:
    """Return whether a traced product, and others by the same kernel, multiply all matrices of an unpacked tensor."""
    parts = op.inputs[0].op
    if parts.type != "Unpack" or parts.get_attr("axis") != 0 or op.inputs[0].dtype != tf.float32:
        return False
    return not op.get_attr("transpose_a") and all(
        any(
            user.type == "MatMul" and user.inputs[0] is part and _kernel(user) == _kernel(op)
            for user in part.consumers()
        )
        for part in parts.outputs
    )


def _kernel(product: tf.Operation) -> tuple[str, bool]:
    """Return the name of a traced product's kernel, the same for each read of a variable, and whether it is transposed."""
    kernel = product.inputs[1]
    read = kernel.op.type == "ReadVariableOp"
    return (kernel.op.inputs[0] if read else kernel).name, product.get_attr("transpose_b")


def _product_of_whole(own: Product, memo: Memo) -> list[tf.Tensor]:
    """Return the products of all matrices of an unpacked tensor by one kernel, memoized."""
    whole = own.a.op.inputs[0]
    key = ("products", whole.ref(), own.b.ref(), own.transpose_b)
    if key not in memo:
        count, _, size = whole.shape
        rows = Product(reshaped(whole, [-1, size]), own.b, transpose_b=own.transpose_b).tensor()
        memo[key] = tf.unstack(reshaped(rows, [count, -1, rows.shape[1]]))
    return list(memo[key])


@lowers("BatchMatMulV3")
def integer_product(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Return X Y as int32, computed in float32.

    Sums of up to 2^24 / 127^2 = 1,040 terms are exact; longer sums are rounded to 24 bits.
    """
    if any(t.dtype != tf.int8 for t in op.inputs):
        raise Refusal("multiplies numbers other than int8; cast them to float32 first")
    (product,) = batch_matmul(op, [tf.cast(value, tf.float32) for value in inputs], memo)
    return [tf.cast(product, op.outputs[0].dtype)]


@lowers("Einsum")
def einsum(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the sums of products along the labels of an equation."""
    equation = op.get_attr("equation").decode()
    left, _, result = equation.partition("->")
    labels = left.split(",")
    if _elementwise(labels, result):
        return [_product(inputs, labels, result)]
    labels, result = _without_dots(labels, result, [len(x.shape) for x in inputs])
    pairs = _without_broadcasting(inputs, labels)
    labels = [own for _, own in pairs]
    parts = [_simple(x, own, labels, i, result) for i, (x, own) in enumerate(pairs)]
    unique = "".join(dict.fromkeys(result))
    if len(parts) == 1:
        x, own = parts[0]
        y = tf.transpose(x, [own.index(label) for label in unique])
    else:
        (a, first), (b, second) = parts
        y = _batch_product(a, first, b, second, unique)
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


def _batch_product(a: tf.Tensor, first: str, b: tf.Tensor, second: str, result: str) -> tf.Tensor:
    """Return the sums of products of two tensors, whose labels are all in the other tensor or the result.

    It is computed at rank 3 or above, as `products.Product`.
    """
    shared = [label for label in first if label in second]
    batch, summed = ([label for label in shared if (label in result) == kept] for kept in (True, False))
    left, right = ([label for label in own if label not in shared] for own in (first, second))
    sizes = dict(zip(first + second, [*a.shape, *b.shape], strict=True))
    turned_a, turned_b = list(first) == [*batch, *summed, *left], list(second) == [*batch, *right, *summed]
    a = _grouped(a, first, batch, (summed, left) if turned_a else (left, summed), sizes)
    b = _grouped(b, second, batch, (right, summed) if turned_b else (summed, right), sizes)
    y = tf.matmul(a, b, transpose_a=turned_a, transpose_b=turned_b)
    plain = not batch and len(left) == len(right) == 1
    y = tf.squeeze(y, 0) if plain else reshaped(y, _sizes([[label] for label in (*batch, *left, *right)], sizes))
    return _in_order(y, [*batch, *left, *right], result)


def _grouped(
    x: tf.Tensor, own: str, batch: Sequence[str], groups: Sequence[Sequence[str]], sizes: Mapping[str, int | None]
) -> tf.Tensor:
    """Return a tensor with an axis for each batch label, or one of size 1, and an axis for each group of labels."""
    x = _in_order(x, own, [*batch, *groups[0], *groups[1]])
    return reshaped(x, _sizes([*([[label] for label in batch] or [[]]), *groups], sizes))


def _in_order(x: tf.Tensor, own: Sequence[str], order: Sequence[str]) -> tf.Tensor:
    return x if list(own) == list(order) else tf.transpose(x, [own.index(label) for label in order])


def _sizes(groups: Sequence[Sequence[str]], sizes: Mapping[str, int | None]) -> list[int]:
    """Return the number of elements along each group of labels, with -1 for an open one."""
    counts = [prod(-1 if (size := sizes[label]) is None else size for label in group) for group in groups]
    if sum(count < 0 for count in counts) > 1:
        raise Refusal("depends on the rows along several axes; give a batch size")
    return [max(count, -1) for count in counts]


def _without_dots(labels: list[str], result: str, ranks: list[int]) -> tuple[list[str], str]:
    """Return an equation with letters instead of the dots, the same from the last axis on."""
    free = [letter for letter in ascii_letters if letter not in "".join([*labels, result])]
    counts = [rank - len(own.replace("...", "")) for own, rank in zip(labels, ranks, strict=True)]
    dots = "".join(free[: max(0, *counts)])
    letters = [dots[len(dots) - count :] for count in counts]
    labels = [own.replace("...", own_dots) for own, own_dots in zip(labels, letters, strict=True)]
    return labels, result.replace("...", dots)


def _without_broadcasting(inputs: Sequence[tf.Tensor], labels: Sequence[str]) -> list[tuple[tf.Tensor, str]]:
    """Return the tensors and their labels, without axes of size 1 that broadcast to another tensor."""
    wide = {
        label for x, own in zip(inputs, labels, strict=True) for label, n in zip(own, x.shape, strict=True) if n != 1
    }
    found = []
    for x, own in zip(inputs, labels, strict=True):
        axes = [i for i, (label, n) in enumerate(zip(own, x.shape, strict=True)) if n == 1 and label in wide]
        kept = "".join(label for i, label in enumerate(own) if i not in axes)
        found.append((tf.squeeze(x, axes) if axes else x, kept))
    return found


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
