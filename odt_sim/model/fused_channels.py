"""Fusion of factors and terms of channels, such as biases and BatchNormalization, into constant weights before them."""

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from odt_sim.model.editing import OPS, add_buffer, integers, kind_of, tensors_of

CHANNELS = {OPS.CONV_2D: 0, OPS.DEPTHWISE_CONV_2D: 3, OPS.FULLY_CONNECTED: 0}
"""The axis of the output's channels in the weights."""


def fuse_channels(model: Any, subgraph: Any) -> None:
    """Fuse the constant of a MUL into weights and biases, and of an ADD into biases, if nothing else uses the output.

    Args:
        model: A file in its object form.
        subgraph: One of its subgraphs, whose weights are constants.
    """
    fusing = _Fusing(model, subgraph)
    for operator in list(subgraph.operators):
        if kind_of(model, operator) in CHANNELS:
            while fusing.fuse(operator):
                pass


class _Fusing:
    """The changes to one subgraph."""

    def __init__(self, model: Any, subgraph: Any) -> None:
        self._model, self._subgraph = model, subgraph
        self._users: dict[int, list[Any]] = {}
        for operator in subgraph.operators:
            for tensor in tensors_of(operator.inputs):
                self._users.setdefault(tensor, []).append(operator)

    def fuse(self, product: Any) -> bool:
        """Fuse the op after a product into the product; return whether that was possible."""
        output = int(product.outputs[0])
        users = self._users.get(output, [])
        free = product.builtinOptions.fusedActivationFunction == schema.ActivationFunctionType.NONE
        if len(users) != 1 or output in integers(self._subgraph.outputs) or not free:
            return False
        [after] = users
        kind = kind_of(self._model, after)
        others = [i for i in tensors_of(after.inputs) if i != output]
        if kind not in (OPS.MUL, OPS.ADD) or len(others) != 1 or self._shape(after.outputs[0]) != self._shape(output):
            return False
        weights = self._value(int(product.inputs[1]))
        constant, axis = self._value(others[0]), CHANNELS[kind_of(self._model, product)]
        if weights is None or constant is None:
            return False
        channels = weights.shape[axis]
        if constant.size not in (1, channels) or (constant.ndim and constant.shape[-1] != constant.size):
            return False
        bias = self._bias(product, channels)
        if bias is None:
            return False
        vector = np.broadcast_to(constant.reshape(-1), [channels])
        if kind == OPS.MUL:
            shape = [channels if i == axis else 1 for i in range(weights.ndim)]
            self._replace(product, 1, weights * vector.reshape(shape))
            self._replace(product, 2, bias * vector)
        else:
            self._replace(product, 2, bias + vector)
        product.outputs = after.outputs
        product.builtinOptions.fusedActivationFunction = after.builtinOptions.fusedActivationFunction
        self._subgraph.operators = [each for each in self._subgraph.operators if each is not after]
        return True

    def _bias(self, product: Any, channels: int) -> NDArray[np.float32] | None:
        inputs = integers(product.inputs)
        if len(inputs) < 3 or inputs[2] < 0:
            product.inputs = np.array([*inputs[:2], -1], np.int32)
            return np.zeros(channels, np.float32)
        return self._value(inputs[2])

    def _shape(self, tensor: int) -> list[int]:
        return integers(self._subgraph.tensors[int(tensor)].shape)

    def _value(self, tensor: int) -> NDArray[np.float32] | None:
        """Return the value of a float32 constant; None for any other tensor."""
        own = self._subgraph.tensors[tensor]
        data = self._model.buffers[own.buffer].data
        if data is None or own.type != schema.TensorType.FLOAT32:
            return None
        return np.frombuffer(bytes(data), np.float32).reshape(integers(own.shape))

    def _replace(self, product: Any, place: int, values: NDArray[np.float32]) -> None:
        tensor, output = schema.TensorT(), self._subgraph.tensors[int(product.outputs[0])]
        tensor.name = output.name + (b"/weights", b"/bias")[place - 1]
        tensor.type, tensor.shape = schema.TensorType.FLOAT32, np.array(values.shape, np.int32)
        tensor.buffer = add_buffer(self._model, values.astype(np.float32))
        self._subgraph.tensors.append(tensor)
        inputs = integers(product.inputs)
        inputs[place] = len(self._subgraph.tensors) - 1
        product.inputs = np.array(inputs, np.int32)
