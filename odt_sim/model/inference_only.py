"""Reduce a trainable `.tflite` file to inference with constant weights."""

import re
from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from odt_sim.errors import ModelError
from odt_sim.model.dataflow import live_ops
from odt_sim.model.editing import (
    OPS,
    add_buffer,
    drop_unused,
    handles_of,
    initializers,
    kind_of,
    made,
    operators_of,
    packed,
    tensors_of,
    unpacked,
)
from odt_sim.model.fully_connected import fuse_channels, make_fully_connected, share_tables
from odt_sim.model.graph import CALLS, RANDOM, Graph
from odt_sim.model.graph_reader import read_graph

_CALLS = {getattr(OPS, name): CALLS[name] for name in ("WHILE", "IF", "CALL")}
"""Ops that call subgraphs, and their options with the subgraphs' indices."""

INFERENCE = "odt_sim.inference"
"""The metadata entry with a separate file of `infer`, which takes `x` and weights `a0..aN`; see `native_inference`."""

_WEIGHT = re.compile(rb"a\d+")
_ARITHMETIC = (OPS.ADD, OPS.SUB, OPS.MUL, OPS.DIV)
_RANDOM = tuple(getattr(OPS, name) for name in RANDOM)


def inference_only(content: bytes, where: str) -> bytes:
    """Return a file with only the signature `infer`, in which the variables' initial values are constants.

    Args:
        content: The bytes of a file from `with_initial_weights`.
        where: The file's name, for errors.

    Raises:
        ModelError: `infer` sets a variable that it reads, or reads one that has no constant initial value.
    """
    model = unpacked(content)
    [signature] = (found for found in model.signatureDefs if found.signatureKey == b"infer")
    called = _reachable(model, signature.subgraphIndex)
    if any(operators_of(model, model.subgraphs[index], OPS.ASSIGN_VARIABLE) for index in called):
        _drop_dead(model, read_graph(content, where))
        called = _reachable(model, signature.subgraphIndex)
    _check_sets_nothing(model, called, where)
    values = _initial_values(model)
    if native := _metadata(model, INFERENCE):
        return _native(native, {name: bytes(model.buffers[buffer].data) for name, buffer in values.items()}, where)
    for index in called:
        _read_constants(model, model.subgraphs[index], values, where)
    for position, index in enumerate(called):
        model.subgraphs[index].operators = _renumbered(model, model.subgraphs[index].operators, called)
        model.subgraphs[index].name = model.subgraphs[index].name if position else b"main"
    model.subgraphs = [model.subgraphs[index] for index in called]
    signature.subgraphIndex, model.signatureDefs, model.metadata, model.metadataBuffer = 0, [signature], None, None
    for subgraph in model.subgraphs:
        _fold(model, subgraph)
        share_tables(model, subgraph)
    drop_unused(model)
    return packed(model)


def _metadata(model: Any, name: str) -> bytes | None:
    found = [entry.buffer for entry in model.metadata or () if entry.name == name.encode()]
    return bytes(model.buffers[found[0]].data) if found else None


def _native(content: bytes, values: dict[bytes, bytes], where: str) -> bytes:
    """Return the file that an export keeps for inference, with the values of variables instead of inputs."""
    model = unpacked(content)
    model.metadata = model.metadataBuffer = None
    [subgraph], [signature] = model.subgraphs, model.signatureDefs
    weights = {entry.tensorIndex: entry.name for entry in signature.inputs if _WEIGHT.fullmatch(entry.name)}
    for tensor, name in weights.items():
        if name not in values:
            raise _unknown(where, name.decode())
        subgraph.tensors[tensor].buffer = add_buffer(model, np.frombuffer(values[name], np.uint8))
    signature.inputs = [entry for entry in signature.inputs if entry.tensorIndex not in weights]
    subgraph.inputs = np.array([i for i in subgraph.inputs if i not in weights], np.int32)
    _fold(model, subgraph)
    share_tables(model, subgraph)
    make_fully_connected(model, subgraph)
    fuse_channels(model, subgraph)
    drop_unused(model)
    return packed(model)


def _drop_dead(model: Any, graph: Graph) -> None:
    """Remove ops that no output depends on, such as Keras' draws for layers that use them only in training."""
    for index, live in live_ops(graph, "infer").items():
        pairs = zip(model.subgraphs[index].operators, graph.subgraphs[index].ops, strict=True)
        model.subgraphs[index].operators = [operator for operator, op in pairs if op in live]


def _check_sets_nothing(model: Any, called: list[int], where: str) -> None:
    """Check that `infer` sets no variable that it reads: as constants, they would repeat the same draws in each call."""
    for subgraph in (model.subgraphs[index] for index in called):
        handles = handles_of(model, subgraph)
        for operator in operators_of(model, subgraph, OPS.ASSIGN_VARIABLE):
            name = handles.get(int(operator.inputs[0]), b"of a loop or a branch").decode()
            raise ModelError(
                f"{where}: cannot be reduced to inference, because 'infer' sets the variable {name}, such as the state "
                "of random draws; draw only in training, `call(self, x, training=False)`, or deploy only the trainable "
                "file: --format without values"
            )


def _unknown(where: str, variable: str) -> ModelError:
    return ModelError(
        f"{where}: cannot be reduced to inference, because 'infer' reads the variable {variable}, which has no "
        "constant initial value; deploy only the trainable file"
    )


def _initial_values(model: Any) -> dict[bytes, int]:
    """Return the buffers of the variables' initial values by the variables' names."""
    values = {}
    for index in initializers(model):
        subgraph = model.subgraphs[index]
        handles = handles_of(model, subgraph)
        for operator in operators_of(model, subgraph, OPS.ASSIGN_VARIABLE):
            handle, constant = map(int, operator.inputs)
            buffer = subgraph.tensors[constant].buffer
            if handle in handles and model.buffers[buffer].data is not None:
                values[handles[handle]] = buffer
    return values


def _reachable(model: Any, first: int) -> list[int]:
    """Return a subgraph and those that it calls, itself first."""
    found = [first]
    for index in found:
        for operator in model.subgraphs[index].operators:
            names = _CALLS.get(kind_of(model, operator), ())
            found += [called for name in names if (called := getattr(operator.builtinOptions, name)) not in found]
    return found


def _read_constants(model: Any, subgraph: Any, values: dict[bytes, int], where: str) -> None:
    """Replace the variables that a subgraph reads by constants."""
    handles = handles_of(model, subgraph)
    for operator in operators_of(model, subgraph, OPS.READ_VARIABLE):
        name = handles.get(int(operator.inputs[0]))
        if name not in values:
            raise _unknown(where, name.decode() if name else "passed to a loop or a branch")
        subgraph.tensors[int(operator.outputs[0])].buffer = values[name]
    removed = (OPS.VAR_HANDLE, OPS.READ_VARIABLE, OPS.CALL_ONCE)
    subgraph.operators = [each for each in subgraph.operators if kind_of(model, each) not in removed]


def _renumbered(model: Any, operators: list[Any], called: list[int]) -> list[Any]:
    for operator in operators:
        for name in _CALLS.get(kind_of(model, operator), ()):
            setattr(operator.builtinOptions, name, called.index(getattr(operator.builtinOptions, name)))
    return operators


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
        one_row = _repeats_a_row(array) and _is_broadcast(model, subgraph, kept, index)
        stored = array[:1] if one_row else array
        subgraph.tensors[index].buffer = add_buffer(model, stored)
        subgraph.tensors[index].shape = np.array(stored.shape, np.int32)
    subgraph.operators = kept


def _repeats_a_row(array: NDArray[Any]) -> bool:
    """Return whether an array repeats one row per example, as results of an RNN's first step from its initial state."""
    if array.ndim < 2 or len(array) < 2 or not array.size:
        return False
    rows = np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
    return bool((rows == rows[:1]).all())


def _is_broadcast(model: Any, subgraph: Any, operators: list[Any], index: int) -> bool:
    """Return whether everything computed from a tensor stays the same if one row of it is broadcast."""
    shapes = [tensor.shape for tensor in subgraph.tensors]
    users = [operator for operator in operators if index in tensors_of(operator.inputs)]
    return index not in tensors_of(subgraph.outputs) and all(
        kind_of(model, user) in _ARITHMETIC
        and all(np.array_equal(shapes[i], shapes[int(user.outputs[0])]) for i in tensors_of(user.inputs) if i != index)
        for user in users
    )


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
