"""Ops on lists of tensors, in which TensorFlow's loops collect their results."""

import tensorflow as tf

from odt_sim.export.importing.flex import node_of
from odt_sim.export.importing.registry import Operator, Value, imports
from odt_sim.export.lowering import tensor_lists
from odt_sim.export.lowering.tensor_lists import LISTS, TensorList


def _import(op_type: str) -> None:
    @imports(f"Flex{op_type}")
    def on_list(operator: Operator) -> list[Value]:
        return LISTS[op_type](_element(operator), operator.inputs)


def _element(operator: Operator) -> tf.DType:
    """Return the element type of an op's list; float32 for ops that do not declare it, such as `TensorListLength`."""
    attributes = node_of(operator.node).attr
    return tf.as_dtype(attributes["element_dtype"].type) if "element_dtype" in attributes else tf.float32


for name in LISTS:
    if name.startswith(("TensorList", "EmptyTensorList")) and name != "TensorListElementShape":
        _import(name)


@imports("FlexTensorListElementShape")
def element_shape(operator: Operator) -> list[Value]:
    """Return the shape of a list's elements."""
    return [tf.cast(operator.inputs[0].shape, operator.dtypes[0])]


@imports("FlexZerosLike")
def zeros_like(operator: Operator) -> list[Value]:
    """Return zeros, or a list of zeros."""
    (value,) = operator.inputs
    if isinstance(value, TensorList):
        return tensor_lists.zeros_like(value.dtype, [value])
    return [tf.zeros_like(value)]


@imports("FlexAddN")
def add(operator: Operator) -> list[Value]:
    """Return the sum of tensors, or the elementwise sum of lists."""
    first = operator.inputs[0]
    if isinstance(first, TensorList):
        return tensor_lists.add(first.dtype, operator.inputs)
    return [tf.add_n(operator.inputs)]
