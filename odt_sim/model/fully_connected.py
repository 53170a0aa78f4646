"""Rewrite products with constant weights: as fully connected layers, with channels' factors and terms fused into them."""

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from odt_sim.model.editing import (
    OPS,
    add_buffer,
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
    _Rewriting(model, subgraph).rewrite()


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


class _Rewriting:
    """The rewriting of one subgraph; products by the same matrix share its tensor."""

    def __init__(self, model: Any, subgraph: Any) -> None:
        self._model, self._subgraph = model, subgraph
        self._weights: dict[tuple[int, bool], int] = {}
        self._transposed: dict[int, int] = {}
        self._operators: list[Any] = []

    def rewrite(self) -> None:
        for operator in self._subgraph.operators:
            if kind_of(self._model, operator) == OPS.BATCH_MATMUL:
                self._product(operator)
            self._operators.append(operator)
        self._subgraph.operators = self._operators

    def _product(self, operator: Any) -> None:
        """Turn a product into a fully connected layer, if its right side is one constant matrix."""
        left, right = map(int, operator.inputs)
        options = operator.builtinOptions
        weights = self._weights_of(right, bool(options.adjY))
        if weights is None:
            return
        rows = self._transpose(left) if options.adjX else left
        connect_fully(self._model, operator, rows, weights)

    def _weights_of(self, index: int, transposed: bool) -> int | None:
        """Return the tensor of the weights `[outputs, inputs]`; None if they are not one constant float32 matrix."""
        matrix, tensor = constant_matrix(self._model, self._subgraph, index), self._subgraph.tensors[index]
        if matrix is None:
            return None
        key = tensor.buffer, transposed
        if key not in self._weights:
            self._weights[key] = self._constant(tensor.name + b"/weights", matrix if transposed else matrix.T)
        return self._weights[key]

    def _transpose(self, index: int) -> int:
        """Return a tensor with the last two axes exchanged, and add the op that computes it."""
        if index not in self._transposed:
            given = self._subgraph.tensors[index]
            order = np.arange(len(given.shape), dtype=np.int32)
            order[-2:] = order[-2:][::-1]
            result = schema.TensorT()
            result.name, result.type, result.shape = given.name + b"/transposed", given.type, given.shape[order]
            if given.shapeSignature is not None:
                result.shapeSignature = given.shapeSignature[order]
            self._transposed[index] = self._add(result)
            inputs, outputs = [index, self._constant(given.name + b"/axes", order)], [self._transposed[index]]
            self._operators.append(made(self._model, OPS.TRANSPOSE, inputs, outputs, schema.TransposeOptionsT()))
        return self._transposed[index]

    def _constant(self, name: bytes, values: NDArray[Any]) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = (
            name,
            np.array(values.shape, np.int32),
            add_buffer(self._model, values),
        )
        tensor.type = schema.TensorType.FLOAT32 if values.dtype == np.float32 else schema.TensorType.INT32
        return self._add(tensor)

    def _add(self, tensor: Any) -> int:
        self._subgraph.tensors.append(tensor)
        return len(self._subgraph.tensors) - 1


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
