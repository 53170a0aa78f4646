"""Rewrite products with constant weights: as fully connected layers, with channels' factors and terms fused into them."""

from copy import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from odt_sim.model.editing.tree import (
    OPS,
    add_constant,
    drop_unused,
    integers,
    kind_of,
    made,
    opcode,
    operators_of,
    packed,
    tensors_of,
    unpacked,
)


def with_fully_connected(content: bytes) -> bytes:
    """Return a file with FULLY_CONNECTED instead of BATCH_MATMUL by one constant matrix.

    Training needs variable weights, for which BATCH_MATMUL is the fast op. LiteRT quantizes a constant matrix by channel in
    FULLY_CONNECTED only.
    """
    model = unpacked(content)
    for subgraph in model.subgraphs:
        make_fully_connected(model, subgraph)
    drop_unused(model)
    return packed(model)


def make_fully_connected(model: Any, subgraph: Any) -> None:
    """Turn a subgraph's products by one constant matrix into FULLY_CONNECTED.

    Args:
        model: A file in its object form.
        subgraph: One of its subgraphs.
    """
    weights, turned = dict[tuple[int, bool], int](), dict[int, int]()  # shared by several products
    operators = []
    for operator in subgraph.operators:
        if kind_of(model, operator) == OPS.BATCH_MATMUL:
            left, right = map(int, operator.inputs)
            options, tensor = operator.builtinOptions, subgraph.tensors[right]
            if (matrix := constant_matrix(model, subgraph, right)) is not None:
                key = tensor.buffer, bool(options.adjY)
                if key not in weights:
                    values = matrix if options.adjY else matrix.T
                    weights[key] = add_constant(model, subgraph, tensor.name + b"/weights", values)
                if options.adjX and left not in turned:
                    turned[left] = _turned(subgraph, left)
                    name, axes = subgraph.tensors[left].name + b"/axes", _order(subgraph.tensors[left])
                    order = add_constant(model, subgraph, name, axes)
                    exchange = made(model, OPS.TRANSPOSE, [left, order], [turned[left]], schema.TransposeOptionsT())
                    operators.append(exchange)
                connect_fully(model, operator, turned[left] if options.adjX else left, weights[key])
        operators.append(operator)
    subgraph.operators = operators


def connect_fully(model: Any, operator: Any, left: int, weights: int) -> None:
    """Turn an op into FULLY_CONNECTED; the output tensor stays.

    Args:
        model: A file in its object form.
        operator: The op.
        left: The tensor to multiply, `[..., inputs]`.
        weights: The tensor to multiply it by, `[outputs, inputs]`.
    """
    operator.inputs = np.array([left, weights, -1], np.int32)
    operator.opcodeIndex = opcode(model, OPS.FULLY_CONNECTED, version=5)  # the version that keeps the axes
    operator.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    operator.builtinOptions = schema.FullyConnectedOptionsT()
    operator.builtinOptions.keepNumDims = True


def constant_matrix(model: Any, subgraph: Any, index: int) -> NDArray[np.float32] | None:
    """Return the values of a tensor that is one constant float32 matrix, `[rows, columns]`; else None."""
    tensor = subgraph.tensors[index]
    data = model.buffers[tensor.buffer].data
    if data is None or tensor.type != schema.TensorType.FLOAT32 or any(size != 1 for size in tensor.shape[:-2]):
        return None
    return np.frombuffer(bytes(data), np.float32).reshape(tensor.shape[-2:])


def _turned(subgraph: Any, index: int) -> int:
    """Add a tensor with the last two axes of another one exchanged; return its index."""
    turned = copy(subgraph.tensors[index])
    turned.name, turned.buffer = turned.name + b"/transposed", 0
    turned.shape = turned.shape[_order(turned)]
    if turned.shapeSignature is not None:
        turned.shapeSignature = turned.shapeSignature[_order(turned)]
    subgraph.tensors.append(turned)
    return len(subgraph.tensors) - 1


def _order(tensor: Any) -> NDArray[np.int32]:
    return np.array([*range(len(tensor.shape) - 2), len(tensor.shape) - 1, len(tensor.shape) - 2], np.int32)


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
        output, inputs = self._subgraph.tensors[int(product.outputs[0])], integers(product.inputs)
        name = output.name + (b"/weights", b"/bias")[place - 1]
        inputs[place] = add_constant(self._model, self._subgraph, name, values.astype(np.float32))
        product.inputs = np.array(inputs, np.int32)


def share_tables(model: Any, subgraph: Any) -> None:
    """Multiply by a table of `GATHER` itself where a product takes its transpose as a constant, to store it once.

    The folding of constants computes such a transpose from weights that the two ops share.

    Args:
        model: A file in its object form.
        subgraph: One of its subgraphs.
    """
    tables = {int(operator.inputs[0]) for operator in operators_of(model, subgraph, OPS.GATHER)}
    for operator in operators_of(model, subgraph, OPS.BATCH_MATMUL):
        left, right = map(int, operator.inputs)
        options, matrix = operator.builtinOptions, _matrix(model, subgraph, right)
        if matrix is None or options.adjX:
            continue
        weights = matrix if options.adjY else matrix.T
        for table in tables - {right}:
            values = _matrix(model, subgraph, table)
            if values is not None and np.array_equal(values, weights):
                connect_fully(model, operator, left, table)
                break


def _matrix(model: Any, subgraph: Any, index: int) -> NDArray[np.uint32] | None:
    """Return the bits of a tensor that is one constant float32 matrix, which compare NaN, too; else None."""
    matrix = constant_matrix(model, subgraph, index)
    return None if matrix is None else matrix.view(np.uint32)
