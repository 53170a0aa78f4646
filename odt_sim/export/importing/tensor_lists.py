"""Ops on lists of tensors, in which TensorFlow's loops gather their results."""

import tensorflow as tf

from odt_sim.export.importing.flex import node_of
from odt_sim.export.importing.registry import Operator, Value, imports
from odt_sim.export.lowering.tensor_lists import LISTS


def _import(op_type: str) -> None:
    @imports(f"Flex{op_type}")
    def on_list(operator: Operator) -> list[Value]:
        return LISTS[op_type](tf.as_dtype(node_of(operator.node).attr["element_dtype"].type), operator.inputs)


for name in LISTS:
    if name.startswith(("TensorList", "EmptyTensorList")) and name != "TensorListElementShape":
        _import(name)


@imports("FlexTensorListElementShape")
def element_shape(operator: Operator) -> list[Value]:
    """Return the shape of each tensor."""
    return [tf.cast(operator.inputs[0].shape, operator.dtypes[0])]
