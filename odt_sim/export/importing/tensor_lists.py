"""Lists of tensors, in which TensorFlow's loops gather their results: exist only while a graph is imported."""

from dataclasses import dataclass, replace

import tensorflow as tf

from odt_sim.export.importing.flex import node_of
from odt_sim.export.importing.registry import Operator, Value, fixed, imports
from odt_sim.export.lowering.registry import Refusal


@dataclass(frozen=True)
class TensorList:
    """A list of tensors of one type.

    Attributes:
        items: The tensors; None for one that was not set, which is read as zeros.
        dtype: Their type.
        shape: The shape of each, as an input of the op that made the list; -1 for what is open.
    """

    items: tuple[tf.Tensor | None, ...]
    dtype: tf.DType
    shape: tf.Tensor

    def item(self, index: int, shape: tf.Tensor) -> tf.Tensor:
        """Return a tensor; `shape` is what its reader expects."""
        value = self.items[index]
        if value is not None:
            return value
        constants = [tf.get_static_value(own) for own in (shape, self.shape)]
        known = [constant for constant in constants if constant is not None and constant.ndim and (constant >= 0).all()]
        computed = [own for own, constant in zip((shape, self.shape), constants, strict=True) if constant is None]
        if not known and not computed:
            raise Refusal("reads an item of a list that was not set, of open shape")
        return tf.fill([*known, *computed][0], tf.zeros([], self.dtype))


def _dtype(operator: Operator) -> tf.DType:
    return tf.as_dtype(node_of(operator.node).attr["element_dtype"].type)


@imports("FlexEmptyTensorList")
def empty(operator: Operator) -> list[Value]:
    """Return an empty list."""
    return [TensorList((), _dtype(operator), operator.inputs[0])]


@imports("FlexTensorListReserve")
def reserve(operator: Operator) -> list[Value]:
    """Return a list of a length."""
    shape, length = operator.inputs
    return [TensorList((None,) * int(fixed(length)), _dtype(operator), shape)]


@imports("FlexTensorListFromTensor")
def from_tensor(operator: Operator) -> list[Value]:
    """Return the slices along the first axis."""
    tensor, shape = operator.inputs
    if not tensor.shape.rank or tensor.shape[0] is None:
        raise Refusal("makes a list of an open number of tensors; give a batch size")
    return [TensorList(tuple(tf.unstack(tensor)), tensor.dtype, shape)]


@imports("FlexTensorListStack")
def stack(operator: Operator) -> list[Value]:
    """Join the tensors along a new first axis."""
    values, shape = operator.inputs
    return [tf.stack([values.item(i, shape) for i in range(len(values.items))])]


@imports("FlexTensorListGetItem")
def get_item(operator: Operator) -> list[Value]:
    """Return a tensor."""
    values, index, shape = operator.inputs
    return [values.item(int(fixed(index)), shape)]


@imports("FlexTensorListSetItem")
def set_item(operator: Operator) -> list[Value]:
    """Return the list with one tensor replaced."""
    values, index, item = operator.inputs
    position = int(fixed(index))
    return [replace(values, items=(*values.items[:position], item, *values.items[position + 1 :]))]


@imports("FlexTensorListPushBack")
def push_back(operator: Operator) -> list[Value]:
    """Return the list with one more tensor."""
    values, item = operator.inputs
    return [replace(values, items=(*values.items, item))]


@imports("FlexTensorListPopBack")
def pop_back(operator: Operator) -> list[Value]:
    """Return the list without its last tensor, and that."""
    values, shape = operator.inputs
    return [replace(values, items=values.items[:-1]), values.item(-1, shape)]


@imports("FlexTensorListLength")
def length(operator: Operator) -> list[Value]:
    """Return the number of tensors."""
    return [tf.constant(len(operator.inputs[0].items))]


@imports("FlexTensorListElementShape")
def element_shape(operator: Operator) -> list[Value]:
    """Return the shape of each tensor."""
    return [tf.cast(operator.inputs[0].shape, operator.dtypes[0])]
