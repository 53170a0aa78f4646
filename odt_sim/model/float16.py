"""Store the constants of an inference-only `.tflite` file as float16."""

from copy import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.editing import OPS, add_buffer, drop_unused, made, packed, tensors_of, unpacked

FEWEST = 16
"""The fewest values of a constant to store as float16; with fewer, a DEQUANTIZE takes more space than it saves."""


def with_half_floats(content: bytes) -> bytes:
    """Return an inference-only file with float16 constants, which the runtime converts to float32 on loading."""
    model = unpacked(content)
    for subgraph in model.subgraphs:
        shared: dict[int, int] = {}
        for index in _float_constants(model, subgraph):
            subgraph.operators.insert(0, _dequantized(model, subgraph, index, shared))
    drop_unused(model)
    return packed(model)


def _float_constants(model: Any, subgraph: Any) -> list[int]:
    """Return the constants that float16 can represent and that ops read."""
    used = {i for operator in subgraph.operators for i in tensors_of(operator.inputs)}
    found = []
    for index in sorted(used):
        tensor = subgraph.tensors[index]
        data = model.buffers[tensor.buffer].data
        if tensor.type == schema.TensorType.FLOAT32 and data is not None and len(data) >= 4 * FEWEST:
            values = np.frombuffer(bytes(data), np.float32)
            if np.abs(values).max() <= np.finfo(np.float16).max:
                found.append(index)
    return found


def _dequantized(model: Any, subgraph: Any, index: int, shared: dict[int, int]) -> Any:
    """Move a constant to a float16 tensor, and return the op that converts it to the float32 tensor."""
    tensor = subgraph.tensors[index]
    if tensor.buffer not in shared:
        values = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.float32).astype(np.float16)
        shared[tensor.buffer] = add_buffer(model, values)
    half = copy(tensor)
    half.type, half.buffer, half.name = schema.TensorType.FLOAT16, shared[tensor.buffer], tensor.name + b"_float16"
    tensor.buffer = 0
    subgraph.tensors.append(half)
    inputs, options = [len(subgraph.tensors) - 1], schema.DequantizeOptionsT()
    return made(model, OPS.DEQUANTIZE, inputs, [index], options, version=3)  # the version that takes float16
