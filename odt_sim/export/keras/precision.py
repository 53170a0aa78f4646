"""Models in other types than float32.

Mixed precision is computed in float32, because LiteRT has no float16 kernels for training. Kernels that `quantize("int8")`
rounded are stored as int8.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import keras
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from keras.src.ops.core import Cast  # has no public name
from numpy.typing import NDArray

from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export.keras.parameters import all_layers
from odt_sim.model.editing.tree import OPS, add_buffer, drop_unused, initializers, opcode, packed, tensors_of, unpacked

MIXED, HALF = ("mixed_float16", "mixed_bfloat16"), ("float16", "bfloat16")


def mixed_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers that compute in float16 or bfloat16 with weights in float32."""
    return [layer for layer in all_layers(model) if layer.dtype_policy.name in MIXED]


def warn_of_mixed(model: keras.Model) -> None:
    """Warn that mixed-precision layers are computed in float32."""
    mixed = [layer for layer in mixed_layers(model) if layer._trainable_variables or layer._non_trainable_variables]
    if mixed:
        warnings.warn(
            f"model {model.name!r}: layers with the policy {mixed[-1].dtype_policy.name} ({len(mixed)} with weights) "
            "compute in float32 in the file; their weights are float32 in any case",
            ExportWarning,
            stacklevel=5,
        )


def with_float32_inputs(part: keras.Model) -> keras.Model:
    """Change the half-precision inputs of a part cut from a mixed-precision model to float32, and return the part."""
    for tensor in part.inputs:
        if tensor.dtype in HALF:
            tensor._dtype = "float32"
    return part


@contextmanager
def in_float32(model: keras.Model) -> Iterator[None]:
    """Give mixed-precision layers, including the casts of masks, the policy float32 while a model is traced."""
    before = [(layer, layer._dtype_policy) for layer in mixed_layers(model)]
    casts = [(cast, cast.dtype) for cast in (_half_casts(model) if before else ())]
    for layer, _ in before:
        layer._dtype_policy = keras.DTypePolicy("float32")
    for cast, _ in casts:
        cast.dtype = "float32"
    try:
        yield
    finally:
        for layer, policy in before:
            layer._dtype_policy = policy
        for cast, dtype in casts:
            cast.dtype = dtype


def _half_casts(model: keras.Model) -> list[Cast]:
    """Return the casts to half precision in graphs of layers, which Keras adds to compute masks."""
    graphs = [getattr(layer, "_functional", None) or layer for layer in all_layers(model)]  # inside a Sequential
    operations = [own for graph in graphs for own in getattr(graph, "operations", ())]
    return [own for own in operations if isinstance(own, Cast) and own.dtype in HALF]


FEWEST = 64
"""The minimum number of values of a constant stored as int8; for fewer, the CAST takes more bytes than it saves."""


def quantized(model: keras.Model) -> bool:
    """Return whether a model has quantized layers.

    Raises:
        ExportError: A layer is quantized to a type other than int8.
    """
    modes = {layer.name: getattr(layer, "quantization_mode", None) for layer in all_layers(model)}
    for name, mode in modes.items():
        if mode not in (None, "int8"):
            raise ExportError(
                f"layer {name!r}: quantized to {mode}, which LiteRT cannot train; quantize to int8, or leave the "
                "layer in float32"
            )
    return any(modes.values())


def with_int8_constants(content: bytes) -> bytes:
    """Store float32 constants of whole numbers from -127 to 127 as int8 in a file's content; results stay equal.

    The converter folds the CAST of a constant kernel into float32, which takes four times the bytes.
    """
    model = unpacked(content)
    model.metadata = []  # the converter's metadata, whose buffers would need new numbers
    shared: dict[int, int] = {}
    kept = initializers(model)  # where `deploy` stores trained weights
    for subgraph in (subgraph for i, subgraph in enumerate(model.subgraphs) if i not in kept):
        used = {i for operator in subgraph.operators for i in tensors_of(operator.inputs)}
        for index in sorted(used):
            values = _whole_numbers(model, subgraph.tensors[index])
            if values is not None:
                subgraph.operators.insert(0, _cast(model, subgraph, index, values, shared))
    drop_unused(model)
    return packed(model)


def _whole_numbers(model: Any, tensor: Any) -> NDArray[np.int8] | None:
    """Return a constant as int8; None if the tensor is no float32 constant, is small, or has other values."""
    data = model.buffers[tensor.buffer].data
    if tensor.type != schema.TensorType.FLOAT32 or data is None or len(data) < 4 * FEWEST:
        return None
    values = np.frombuffer(bytes(data), np.float32)
    if np.abs(values).max() > 127:
        return None
    whole = values.astype(np.int8)
    return whole if np.array_equal(whole, values) else None


def _cast(model: Any, subgraph: Any, index: int, values: NDArray[np.int8], shared: dict[int, int]) -> Any:
    """Move a constant to an int8 tensor, and return the op that casts it to the float32 tensor."""
    tensor = subgraph.tensors[index]
    if tensor.buffer not in shared:
        shared[tensor.buffer] = add_buffer(model, values)
    small = copy(tensor)
    small.type, small.buffer, small.name = schema.TensorType.INT8, shared[tensor.buffer], tensor.name + b"_int8"
    tensor.buffer = 0
    subgraph.tensors.append(small)
    operator = schema.OperatorT()
    operator.opcodeIndex = opcode(model, OPS.CAST)
    operator.inputs = np.array([len(subgraph.tensors) - 1], np.int32)
    operator.outputs = np.array([index], np.int32)
    operator.builtinOptionsType = schema.BuiltinOptions.CastOptions
    operator.builtinOptions = schema.CastOptionsT()
    operator.builtinOptions.inDataType, operator.builtinOptions.outDataType = small.type, tensor.type
    return operator
