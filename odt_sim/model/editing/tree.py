"""A `.tflite` file as a tree of objects that can be changed and written again."""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from odt_sim.model.reading.flatbuffer_fields import BUFFERS, Fields
from odt_sim.model.reading.graph import Graph
from odt_sim.model.reading.graph_reader import IDENTIFIER, read_graph

OPS = schema.BuiltinOperator


def unpacked(content: bytes) -> Any:
    """Return a file's content as a `schema.ModelT`."""
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))


def packed(model: Any) -> bytes:
    """Return the bytes of a file in its object form; shared objects of tensors and options are written once."""
    builder, made, written = flatbuffers.Builder(1 << 20), copy(model), dict[int, _WrittenOnce]()
    made.subgraphs = [copy(subgraph) for subgraph in model.subgraphs]
    for subgraph in made.subgraphs:
        subgraph.tensors = [written.setdefault(id(own), _WrittenOnce(own)) for own in subgraph.tensors]
        subgraph.operators = [copy(operator) for operator in subgraph.operators]
        for operator in subgraph.operators:
            if (own := operator.builtinOptions) is not None:
                operator.builtinOptions = written.setdefault(id(own), _WrittenOnce(own))
    builder.Finish(made.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


class _WrittenOnce:
    """A part of a file, written only where it first occurs."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self._offset: int | None = None

    def Pack(self, builder: Any) -> int:  # noqa: N802  the schema's name
        if self._offset is None:
            self._offset = self._part.Pack(builder)
        return self._offset


def integers(values: Any) -> list[int]:
    """Return a vector of a file as numbers; an empty vector may be None."""
    return [] if values is None else [int(value) for value in values]


def kind_of(model: Any, operator: Any) -> int:
    """Return an op's number in `OPS`."""
    code = model.operatorCodes[operator.opcodeIndex]
    return int(max(code.builtinCode, code.deprecatedBuiltinCode))


def operators_of(model: Any, subgraph: Any, kind: int) -> list[Any]:
    """Return the ops of one kind."""
    return [operator for operator in subgraph.operators if kind_of(model, operator) == kind]


def initializers(model: Any) -> set[int]:
    """Return the indices of the subgraphs that set the variables' initial values."""
    calls = (operator for subgraph in model.subgraphs for operator in operators_of(model, subgraph, OPS.CALL_ONCE))
    return {operator.builtinOptions.initSubgraphIndex for operator in calls}


def handles_of(model: Any, subgraph: Any) -> dict[int, bytes]:
    """Return the variables' names by the tensors of their handles."""
    operators = operators_of(model, subgraph, OPS.VAR_HANDLE)
    return {int(operator.outputs[0]): operator.builtinOptions.sharedName for operator in operators}


def opcode(model: Any, kind: int, version: int = 1) -> int:
    """Return the index of an op's code, which is added if the file lacks it."""
    for index, code in enumerate(model.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == kind and code.version >= version:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = kind, min(kind, 127), version
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def made(model: Any, kind: int, inputs: Sequence[int], outputs: Sequence[int], options: Any, version: int = 1) -> Any:
    """Return an op, whose code is added if the file lacks it.

    Args:
        model: A file in its object form.
        kind: The op's number in `OPS`.
        inputs: The tensors that it takes.
        outputs: The tensors that it computes.
        options: Its options, such as `ReshapeOptionsT()` of `schema`.
        version: The lowest version of the op.
    """
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.builtinOptions = opcode(model, kind, version), options
    operator.inputs, operator.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
    return operator


def add_buffer(model: Any, array: NDArray[Any]) -> int:
    """Add a constant's bytes; return the index of the buffer."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def add_tensor(subgraph: Any, name: bytes | str, shape: Sequence[int], dtype: int, buffer: int = 0) -> int:
    """Add a tensor of fixed shape; return its index.

    Args:
        subgraph: A subgraph in its object form.
        name: The tensor's name.
        shape: Its shape.
        dtype: Its type, from `schema.TensorType`.
        buffer: The buffer of a constant; 0 for a tensor that an op computes.
    """
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name, np.array(shape, np.int32), dtype, buffer
    subgraph.tensors.append(tensor)
    return len(subgraph.tensors) - 1


def add_constant(model: Any, subgraph: Any, name: bytes | str, values: NDArray[Any]) -> int:
    """Add a constant tensor; return its index."""
    dtype = getattr(schema.TensorType, values.dtype.name.upper())
    return add_tensor(subgraph, name, values.shape, dtype, add_buffer(model, values))


def drop_unused(model: Any) -> None:
    """Remove the tensors, the ops' codes and the buffers that nothing refers to."""
    for subgraph in model.subgraphs:
        _drop_tensors(model, subgraph)
    codes = sorted({operator.opcodeIndex for subgraph in model.subgraphs for operator in subgraph.operators})
    buffers = sorted({0} | {tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors})
    for subgraph in model.subgraphs:
        for operator in subgraph.operators:
            operator.opcodeIndex = codes.index(operator.opcodeIndex)
        for tensor in subgraph.tensors:
            tensor.buffer = buffers.index(tensor.buffer)
    model.operatorCodes = [model.operatorCodes[code] for code in codes]
    model.buffers = [model.buffers[buffer] for buffer in buffers]


def _drop_tensors(model: Any, subgraph: Any) -> None:
    users = [subgraph, *subgraph.operators]
    used = sorted({i for user in users for i in (*tensors_of(user.inputs), *tensors_of(user.outputs))})
    places = {-1: -1} | {index: place for place, index in enumerate(used)}
    for user in users:
        for side in ("inputs", "outputs"):
            moved = [places[i] for i in integers(getattr(user, side))]
            setattr(user, side, np.array(moved, np.int32))
    if subgraph is model.subgraphs[0]:
        for entry in (*model.signatureDefs[0].inputs, *model.signatureDefs[0].outputs):
            entry.tensorIndex = places[entry.tensorIndex]
    subgraph.tensors = [subgraph.tensors[index] for index in used]


def tensors_of(indices: Any) -> list[int]:
    """Return an op's tensors without the optional ones that it leaves out."""
    return [i for i in integers(indices) if i >= 0]


@lru_cache(4)
def with_computed_outputs(content: bytes) -> bytes:
    """Return a file whose outputs are all computed; the file itself if they already are, or if it is damaged.

    LiteRT's compiled model prints a line in each call for every constant output, such as `done` of signatures that only
    set variables.
    """
    try:
        if not _has_constant_outputs(read_graph(content, "")):
            return content
        file = unpacked(content)
        compute_outputs(file)
        return packed(file)
    except Exception:  # damage causes any exception; LiteRT says what is wrong
        return content


def _has_constant_outputs(graph: Graph) -> bool:
    """Return whether an output of a signature is a constant; unpacking the file would take five times as long."""
    entries = graph.signatures.values()
    return any(graph.subgraphs[own.subgraph].tensors[i].constant for own in entries for i in own.outputs.values())


def compute_outputs(file: Any) -> None:
    """Replace each constant output by the output of an op.

    Args:
        file: A file in its object form.
    """
    results = dict[tuple[int, int], int]()  # by subgraph and constant, since signatures may share a subgraph
    for signature in file.signatureDefs or []:
        subgraph = file.subgraphs[signature.subgraphIndex]
        for entry in signature.outputs:
            place = signature.subgraphIndex, entry.tensorIndex
            if place not in results and file.buffers[subgraph.tensors[entry.tensorIndex].buffer].data is not None:
                results[place] = _compute(file, subgraph, entry.tensorIndex)
            entry.tensorIndex = results.get(place, entry.tensorIndex)


def _compute(file: Any, subgraph: Any, constant: int) -> int:
    """Add the op that computes an output of a subgraph; return the tensor that it computes.

    The op is a CAST to the same type, since LiteRT runs other ops on constants before the first call.
    """
    tensor, options = subgraph.tensors[constant], schema.CastOptionsT()
    options.inDataType = options.outDataType = tensor.type
    result = add_tensor(subgraph, "computed", integers(tensor.shape), tensor.type)
    subgraph.operators.append(made(file, OPS.CAST, [constant], [result], options))
    outputs = [result if own == constant else own for own in integers(subgraph.outputs)]
    subgraph.outputs = np.array(outputs, np.int32)
    return result


WORTH = 0.1
"""The share of repeated constants above which a file is rewritten; for a graph of 10,000 ops, that takes seconds."""

_DATA = 0  # the slot of a buffer


def with_shared_constants(content: bytes) -> bytes:
    """Return a file whose tensors of equal data refer to one buffer, or the file itself if that saves too little."""
    model = Fields.root(content)
    counts = Counter(buffer.text(_DATA) for buffer in model.tables(BUFFERS))
    repeated = sum(len(data) * (count - 1) for data, count in counts.items())
    return _shared(content) if repeated > WORTH * len(content) else content


def _shared(content: bytes) -> bytes:
    model = unpacked(content)
    first = dict[bytes, int]()
    kept = {}
    for index, buffer in enumerate(model.buffers):
        if buffer.data is not None and len(buffer.data):
            kept[index] = first.setdefault(bytes(buffer.data), index)
    for tensor in (tensor for subgraph in model.subgraphs for tensor in subgraph.tensors):
        tensor.buffer = kept.get(tensor.buffer, tensor.buffer)
    used = {entry.buffer for entry in model.metadata or []} | set(kept.values())
    for index in kept.keys() - used:
        model.buffers[index].data = None
    return packed(model)
