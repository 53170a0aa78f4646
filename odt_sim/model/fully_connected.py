"""Rewrite matrix products with constant weights as fully connected layers, which quantize by channel."""

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from odt_sim.model.editing import OPS, add_buffer, drop_unused, kind_of, opcode, packed, unpacked


def with_fully_connected(content: bytes) -> bytes:
    """Return a file in which BATCH_MATMUL by one constant matrix is FULLY_CONNECTED.

    Training needs variable weights, for which BATCH_MATMUL is the fast op. LiteRT quantizes a constant matrix by channel in
    FULLY_CONNECTED only.
    """
    model = unpacked(content)
    for subgraph in model.subgraphs:
        operators = []
        for operator in subgraph.operators:
            if kind_of(model, operator) == OPS.BATCH_MATMUL and _matrix(model, subgraph, operator) is not None:
                operators += _replaced(model, subgraph, operator)
            else:
                operators.append(operator)
        subgraph.operators = operators
    drop_unused(model)
    return packed(model)


def _matrix(model: Any, subgraph: Any, operator: Any) -> NDArray[np.float32] | None:
    """Return the constant weights `[outputs, inputs]`; None if they are not one constant float32 matrix."""
    tensor = subgraph.tensors[int(operator.inputs[1])]
    data = model.buffers[tensor.buffer].data
    if data is None or tensor.type != schema.TensorType.FLOAT32 or any(size != 1 for size in tensor.shape[:-2]):
        return None
    matrix = np.frombuffer(bytes(data), np.float32).reshape(tensor.shape[-2:])
    return matrix if operator.builtinOptions.adjY else matrix.T


def _replaced(model: Any, subgraph: Any, operator: Any) -> list[Any]:
    matrix = _matrix(model, subgraph, operator)
    assert matrix is not None
    left, right = map(int, operator.inputs)
    weights = schema.TensorT()
    weights.name, weights.type = subgraph.tensors[right].name + b"/weights", schema.TensorType.FLOAT32
    weights.shape, weights.buffer = np.array(matrix.shape, np.int32), add_buffer(model, matrix)
    transposed = [_transpose(model, subgraph, left)] if operator.builtinOptions.adjX else []
    operator.inputs = np.array(
        [int(transposed[0].outputs[0]) if transposed else left, _add(subgraph, weights), -1], np.int32
    )
    operator.opcodeIndex = opcode(model, OPS.FULLY_CONNECTED, version=5)  # the version that keeps the axes
    operator.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    operator.builtinOptions = schema.FullyConnectedOptionsT()
    operator.builtinOptions.keepNumDims = True
    return [*transposed, operator]


def _transpose(model: Any, subgraph: Any, index: int) -> Any:
    """Return an op that exchanges the last two axes of a tensor."""
    given = subgraph.tensors[index]
    order = np.arange(len(given.shape), dtype=np.int32)
    order[-2:] = order[-2:][::-1]
    axes, result, operator = schema.TensorT(), schema.TensorT(), schema.OperatorT()
    axes.name, axes.type, axes.shape = given.name + b"/axes", schema.TensorType.INT32, np.array(order.shape, np.int32)
    axes.buffer = add_buffer(model, order)
    result.name, result.type, result.shape = given.name + b"/transposed", given.type, given.shape[order]
    if given.shapeSignature is not None:
        result.shapeSignature = given.shapeSignature[order]
    operator.opcodeIndex = opcode(model, OPS.TRANSPOSE)
    operator.inputs = np.array([index, _add(subgraph, axes)], np.int32)
    operator.outputs = np.array([_add(subgraph, result)], np.int32)
    operator.builtinOptionsType, operator.builtinOptions = (
        schema.BuiltinOptions.TransposeOptions,
        schema.TransposeOptionsT(),
    )
    return operator


def _add(subgraph: Any, tensor: Any) -> int:
    subgraph.tensors.append(tensor)
    return len(subgraph.tensors) - 1
