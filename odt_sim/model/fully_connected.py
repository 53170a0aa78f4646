"""Rewrite matrix products with constant weights as fully connected layers, which quantize by channel."""

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from odt_sim.model.editing import OPS, add_buffer, drop_unused, kind_of, made, opcode, packed, unpacked


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
