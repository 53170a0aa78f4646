"""Reduce a trainable `.tflite` file to inference with constant weights."""

import re
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from odt_sim.errors import ModelError
from odt_sim.model.editing.fully_connected import fuse_channels, make_fully_connected, share_tables
from odt_sim.model.editing.tree import (
    OPS,
    add_buffer,
    drop_unused,
    kind_of,
    made,
    packed,
    tensors_of,
    unpacked,
)
from odt_sim.model.reading.dataflow import live_ops
from odt_sim.model.reading.graph import CALLS, RANDOM
from odt_sim.model.reading.graph_reader import read_graph

_CALLS = {getattr(OPS, name): CALLS[name] for name in ("WHILE", "IF", "CALL")}
"""Ops that call subgraphs, and their options with the subgraphs' indices."""

INFERENCE = "odt_sim.inference"
"""The metadata entry with a separate file of `infer`, which takes `x` and weights `a0..aN`; see `native_inference`."""

_WEIGHT = re.compile(rb"a\d+")
_OF_VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "CALL_ONCE")
_RANDOM = tuple(getattr(OPS, name) for name in RANDOM)


def inference_only(content: bytes, where: str) -> bytes:
    """Return a file with only the signature `infer`, in which the variables' initial values are constants.

    Args:
        content: The bytes of a file from `with_initial_weights`.
        where: The file's name, for errors.

    Raises:
        ModelError: `infer` sets a variable that it reads, or reads one that has no constant initial value.
    """
    graph, model = read_graph(content, where), unpacked(content)
    [signature] = (found for found in model.signatureDefs if found.signatureKey == b"infer")
    called = graph.reachable(signature.subgraphIndex)
    # Keras' draws for layers that use them only in training are not live.
    live = {index: ops for index, ops in live_ops(graph, "infer").items() if index in called}
    for access in (access for index, ops in live.items() for access in graph.accesses[index] if access.op in ops):
        if access.assigns:  # as a constant, it would repeat the same draws in each call
            raise ModelError(
                f"{where}: cannot be reduced to inference, because 'infer' sets the variable {access.handle.name}, such "
                "as the state of random draws; draw only in training, `call(self, x, training=False)`, or deploy only "
                "the trainable file: --format without values"
            )
    values = {v.name: v.initial.data for v in graph.variables.values() if v.initial and v.initial.data is not None}
    if INFERENCE in graph.metadata:
        return _native(graph.metadata[INFERENCE], values, where)
    buffers = {name: add_buffer(model, data) for name, data in values.items()}
    for position, index in enumerate(live):
        subgraph = model.subgraphs[index]
        for access in graph.accesses[index]:
            if access.op in live[index]:
                if access.handle.name not in buffers:
                    raise _unknown(where, access.handle.name)
                subgraph.tensors[access.place].buffer = buffers[access.handle.name]
        pairs = zip(subgraph.operators, graph.subgraphs[index].ops, strict=True)
        kept = [operator for operator, op in pairs if op in live[index] and op.kind not in _OF_VARIABLES]
        for operator in kept:
            for name in _CALLS.get(kind_of(model, operator), ()):
                setattr(operator.builtinOptions, name, [*live].index(getattr(operator.builtinOptions, name)))
        subgraph.operators = kept
        subgraph.name = subgraph.name if position else b"main"
    model.subgraphs = [model.subgraphs[index] for index in live]
    signature.subgraphIndex, model.signatureDefs, model.metadata, model.metadataBuffer = 0, [signature], None, None
    for subgraph in model.subgraphs:
        _fold(model, subgraph)
        share_tables(model, subgraph)
    drop_unused(model)
    return packed(model)


def _native(content: bytes, values: Mapping[str, NDArray[np.uint8]], where: str) -> bytes:
    """Return the file that an export keeps for inference, with the values of variables instead of inputs."""
    model = unpacked(content)
    model.metadata = model.metadataBuffer = None
    [subgraph], [signature] = model.subgraphs, model.signatureDefs
    weights = {entry.tensorIndex: entry.name.decode() for entry in signature.inputs if _WEIGHT.fullmatch(entry.name)}
    for tensor, name in weights.items():
        if name not in values:
            raise _unknown(where, name)
        subgraph.tensors[tensor].buffer = add_buffer(model, values[name])
    signature.inputs = [entry for entry in signature.inputs if entry.tensorIndex not in weights]
    subgraph.inputs = np.array([i for i in subgraph.inputs if i not in weights], np.int32)
    _fold(model, subgraph)
    share_tables(model, subgraph)
    make_fully_connected(model, subgraph)
    fuse_channels(model, subgraph)
    drop_unused(model)
    return packed(model)


def _unknown(where: str, variable: str) -> ModelError:
    return ModelError(
        f"{where}: cannot be reduced to inference, because 'infer' reads the variable {variable}, which has no "
        "constant initial value; deploy only the trainable file"
    )


def _fold(model: Any, subgraph: Any) -> None:
    """Compute the ops that depend only on constants, with the kernels that would run them on the phone."""
    constant = {i for i, tensor in enumerate(subgraph.tensors) if model.buffers[tensor.buffer].data is not None}
    folded: list[Any] = []
    kept: list[Any] = []
    for operator in subgraph.operators:
        inputs = tensors_of(operator.inputs)
        fixed = inputs and set(inputs) <= constant and kind_of(model, operator) not in (*_CALLS, *_RANDOM)
        (folded if fixed else kept).append(operator)
        constant.update(tensors_of(operator.outputs) if fixed else ())
    needed = {i for operator in kept for i in tensors_of(operator.inputs)} | set(tensors_of(subgraph.outputs))
    results = [i for operator in folded for i in tensors_of(operator.outputs) if i in needed]
    for index, array in zip(results, _computed(model, subgraph, folded, results), strict=True):
        subgraph.tensors[index].buffer = add_buffer(model, array)
        subgraph.tensors[index].shape = np.array(array.shape, np.int32)
    subgraph.operators = kept


def _computed(model: Any, subgraph: Any, operators: list[Any], results: list[int]) -> Iterator[NDArray[Any]]:
    if not results:
        return
    alone, part = copy(model), copy(subgraph)
    part.operators, part.inputs, part.outputs = operators, np.zeros(0, np.int32), np.array(results, np.int32)
    alone.subgraphs, alone.signatureDefs = [part], []
    interpreter = Interpreter(model_content=packed(alone), num_threads=1)
    interpreter.allocate_tensors()
    interpreter.invoke()
    for index in results:
        yield interpreter.get_tensor(index)


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
