"""Lists of tensors, in which TensorFlow's loops collect results; they exist only during inlining and importing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from odt_sim.export.lowering.registry import Refusal

Item = Any
"""A `tf.Tensor`, or a value that a condition keeps for its gradient."""


@dataclass(frozen=True)
class TensorList:
    """A list of tensors of one type.

    Attributes:
        items: The tensors; None for a tensor that was not set, which is read as zeros.
        dtype: The type of the tensors.
        shape: The shape of each tensor, an input of the op that made the list; -1 for open sizes.
    """

    items: tuple[Item | None, ...]
    dtype: tf.DType
    shape: tf.Tensor

    def item(self, index: int, shape: tf.Tensor) -> Item:
        """Return a tensor; `shape` is the shape that the reader expects."""
        value = self.items[index]
        if value is not None:
            return value
        set_one = next((own for own in self.items if own is not None), None)
        if set_one is not None:
            return tf.zeros_like(set_one)
        constants = [tf.get_static_value(own) for own in (shape, self.shape)]
        known = [constant for constant in constants if constant is not None and constant.ndim and (constant >= 0).all()]
        computed = [own for own, constant in zip((shape, self.shape), constants, strict=True) if constant is None]
        if not known and not computed:
            raise Refusal("reads an unset list item of variable shape")
        return tf.fill([*known, *computed][0], tf.zeros([], self.dtype))

    def stacked(self, shape: tf.Tensor) -> tf.Tensor:
        """Return the tensors along a new first axis."""
        return tf.stack([self.item(i, shape) for i in range(len(self.items))])

    def with_item(self, index: int, item: Item) -> "TensorList":
        """Return the list with one tensor replaced."""
        return replace(self, items=(*self.items[:index], item, *self.items[index + 1 :]))


Operation = Callable[[tf.DType, Sequence[Any]], list[Any]]
"""A function from the type of a list's tensors and an op's inputs to the op's outputs."""

LISTS: dict[str, Operation] = {}

MAKES_LISTS = {"EmptyTensorList", "TensorListReserve", "TensorListFromTensor"}
"""The op types that make a list of tensors."""


def _on_lists(op_type: str) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        LISTS[op_type] = function
        return function

    return register


def _number(value: tf.Tensor) -> int:
    constant = tf.get_static_value(value)
    if constant is None:
        raise Refusal(
            "creates or changes a list of variable length or at a variable position; give a batch size or fixed numbers"
        )
    return int(constant)


LISTS |= {
    "EmptyTensorList": lambda dtype, inputs: [TensorList((), dtype, inputs[0])],
    "TensorListStack": lambda _, inputs: [inputs[0].stacked(inputs[1])],
    "TensorListPushBack": lambda _, inputs: [replace(inputs[0], items=(*inputs[0].items, inputs[1]))],
    "TensorListPopBack": lambda _, inputs: [
        replace(inputs[0], items=inputs[0].items[:-1]),
        inputs[0].item(-1, inputs[1]),
    ],
    "TensorListLength": lambda _, inputs: [tf.constant(len(inputs[0].items))],
    "TensorListElementShape": lambda _, inputs: [inputs[0].shape],
}


@_on_lists("TensorListReserve")
def reserve(dtype: tf.DType, inputs: Sequence[Any]) -> list[Any]:
    """Return a list of a given length, without values."""
    shape, length = inputs
    return [TensorList((None,) * _number(length), dtype, shape)]


@_on_lists("TensorListFromTensor")
def from_tensor(dtype: tf.DType, inputs: Sequence[Any]) -> list[Any]:
    """Return the slices along the first axis."""
    tensor, shape = inputs
    if not tensor.shape.rank or tensor.shape[0] is None:
        raise Refusal("creates a list of a variable number of tensors; give a batch size")
    return [TensorList(tuple(tf.unstack(tensor)), tensor.dtype, shape)]


@_on_lists("TensorListConcatV2")
def concat(dtype: tf.DType, inputs: Sequence[Any]) -> list[Any]:
    """Join the tensors along their first axis, and also return their lengths."""
    values, shape, _ = inputs
    items = [values.item(i, shape) for i in range(len(values.items))]
    return [tf.concat(items, 0), tf.constant([item.shape[0] for item in items], tf.int64)]


@_on_lists("TensorListGetItem")
def get_item(dtype: tf.DType, inputs: Sequence[Any]) -> list[Any]:
    """Return the tensor at an index."""
    values, index, shape = inputs
    place = tf.get_static_value(index)
    return [tf.gather(values.stacked(shape), index) if place is None else values.item(int(place), shape)]


@_on_lists("TensorListSetItem")
def set_item(dtype: tf.DType, inputs: Sequence[Any]) -> list[Any]:
    """Return the list with one tensor replaced."""
    values, index, item = inputs
    if tf.get_static_value(index) is not None:
        return [values.with_item(_number(index), item)]
    old = [tf.zeros_like(item) if own is None else own for own in values.items]
    return [replace(values, items=tuple(tf.where(tf.equal(index, i), item, own) for i, own in enumerate(old)))]


@_on_lists("TensorListResize")
def resize(dtype: tf.DType, inputs: Sequence[Any]) -> list[Any]:
    """Return the list with another length."""
    values, length = inputs
    wanted = _number(length)
    return [replace(values, items=(*values.items, *([None] * wanted))[:wanted])]


@_on_lists("ZerosLike")
def zeros_like(dtype: tf.DType, inputs: Sequence[Any]) -> list[Any]:
    """Return a list of zeros."""
    (values,) = inputs
    return [replace(values, items=tuple(None if own is None else tf.zeros_like(own) for own in values.items))]


@_on_lists("AddN")
def add(dtype: tf.DType, inputs: Sequence[Any]) -> list[Any]:
    """Return the list of the sums of several lists' tensors at the same index."""
    each = zip(*(values.items for values in inputs), strict=True)
    sums = [[own for own in items if own is not None] for items in each]
    return [replace(inputs[0], items=tuple(tf.add_n(items) if items else None for items in sums))]


def where(condition: tf.Tensor, one: TensorList, other: TensorList) -> TensorList:
    """Return the list of one of two branches or iterations."""
    if len(one.items) != len(other.items):
        raise Refusal("creates a list whose length depends on data; use a fixed length")
    pairs = [
        (tf.zeros_like(b) if a is None and b is not None else a, tf.zeros_like(a) if b is None and a is not None else b)
        for a, b in zip(one.items, other.items, strict=True)
    ]
    return replace(one, items=tuple(a if a is b else tf.where(condition, a, b) for a, b in pairs))
