"""Read the typed graph of a `.tflite` file; any bytes lead to a graph or to an error of one line."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim._support.text import typed_line
from odt_sim.errors import ModelError
from odt_sim.model.reading.flatbuffer_fields import (
    BUFFERS,
    DESCRIPTION,
    METADATA,
    OPERATOR_CODES,
    SIGNATURES,
    SUBGRAPHS,
    UNSIGNED_64,
    Fields,
)
from odt_sim.model.reading.graph import CALLS, EntryPoint, Graph, Op, Subgraph, Tensor

IDENTIFIER = b"TFL3"
MAIN = "main"  # the name of the entry point of a file without signatures
LARGEST = 1_000_000
"""The most tensors and ops of a file; LiteRT's largest models have about ten thousand."""

LONGEST_NAME = 1000

OTHERS = {
    b"PK\x03\x04": "a zip archive, such as a .keras file, a PyTorch model or a zipped SavedModel",
    b"\x89HDF": "an HDF5 file, such as a Keras .h5 model",
    b"\x08\x01\x12": "a SavedModel's protocol buffer",
    b"\x80\x02": "a Python pickle, such as an old PyTorch model",
}
"""Other file formats by their first bytes; ONNX files have no mark."""

_KINDS = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
_DTYPES = {value: name.lower() for name, value in vars(schema.TensorType).items() if not name.startswith("_")}
_OPTIONS, _OPTIONS_2 = (
    {value: getattr(schema, f"{name}T", None) for name, value in vars(kind).items() if not name.startswith("_")}
    for kind in (schema.BuiltinOptions, schema.BuiltinOptions2)
)


def read_graph(content: bytes, where: str) -> Graph:
    """Read the graph of any `.tflite` file, even if it only infers or needs Flex ops.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.

    Raises:
        ModelError: The bytes are not a readable `.tflite` file.
    """
    check_identifier(content, where)
    try:
        return _Reader(content).graph()
    except Exception as error:  # a damaged flatbuffer causes any exception
        raise damaged(where, error) from error


def damaged(where: str, error: Exception) -> ModelError:
    """Return the error for a file whose flatbuffer cannot be read."""
    reason = typed_line(error)
    return ModelError(f"{where}: damaged .tflite file ({reason}); copy or export it again")


def has_metadata(content: bytes, name: str) -> bool:
    """Return whether a file has a metadata entry, without reading its graph; False for a damaged file."""
    try:
        return any(text_of(entry.text(0)) == name for entry in Fields.root(content).tables(METADATA))
    except Exception:  # a damaged flatbuffer causes any exception
        return False


def check_identifier(content: bytes, where: str) -> None:
    """Check that a file has the mark of `.tflite` files.

    Raises:
        ModelError: It does not.
    """
    if content[4:8] != IDENTIFIER:
        kind = next((text for mark, text in OTHERS.items() if content.startswith(mark)), "")
        found = f"found {content[4:8]!r}" + (f", {kind}" if kind else "")
        raise ModelError(f"{where}: not a .tflite file (expected the identifier TFL3 at byte 4, {found})")


class _Reader:
    """Reads a flatbuffer whose counts and indices may be wrong."""

    def __init__(self, content: bytes) -> None:
        self._content, self._count, self._root = content, 0, Fields.root(content)
        self._subgraphs, self._buffers = (list(self._tables(self._root, slot)) for slot in (SUBGRAPHS, BUFFERS))
        self._codes = [self._kind(code) for code in self._tables(self._root, OPERATOR_CODES)]

    def graph(self) -> Graph:
        subgraphs = tuple(map(self._subgraph, self._subgraphs))
        declared = [self._entry_point(signature, subgraphs) for signature in self._tables(self._root, SIGNATURES)]
        entry_points = declared or [_main(subgraph) for subgraph in subgraphs[:1]]
        entries = self._tables(self._root, METADATA)
        metadata = {text_of(entry.text(0)): self._data(entry.unsigned(1)) for entry in entries}
        return Graph(
            subgraphs,
            {entry.name: entry for entry in entry_points},
            {name: b"" if data is None else data.tobytes() for name, data in metadata.items()},
            text_of(self._root.text(DESCRIPTION)),
        )

    def _tables(self, fields: Fields, slot: int) -> Iterator[Fields]:
        """Yield the tables of a vector of a table, within the limit."""
        self._count += fields.length(slot)
        if self._count > min(LARGEST, len(self._content)):
            raise ValueError(f"more than {min(LARGEST, len(self._content)):,} tensors and ops")
        return fields.tables(slot)

    def _kind(self, code: Fields) -> str:
        number = max(code.unsigned(3), code.byte(0))  # files before 2020 have the number in a byte only
        return text_of(code.text(1)) or _KINDS.get(number, str(number))

    def _subgraph(self, subgraph: Fields) -> Subgraph:
        tensors = tuple(self._tensor(fields) for fields in self._tables(subgraph, 0))
        ops = tuple(self._op(fields, len(tensors)) for fields in self._tables(subgraph, 3))
        inputs, outputs = (_within(subgraph.integers(slot), len(tensors)) for slot in (1, 2))
        return Subgraph(text_of(subgraph.text(4)), tensors, ops, inputs, outputs)

    def _tensor(self, tensor: Fields) -> Tensor:
        shape = tensor.integers(0)
        return Tensor(
            name=text_of(tensor.text(3)),
            shape=shape,
            shape_signature=tensor.integers(7) or shape,
            dtype=_DTYPES[tensor.byte(1)],
            data=self._data(tensor.unsigned(2)),
            quantized=tensor.present(4) and tensor.table(4).length(2) > 0,
        )

    def _data(self, index: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
        """Return a view of a buffer; None for an empty one."""
        buffer = self._buffers[index]
        start, length = buffer.vector(0)
        if (offset := buffer.unsigned(1, UNSIGNED_64)) > 1:  # a file above 2 GB stores its buffers after the flatbuffer
            start, length = offset, buffer.unsigned(2, UNSIGNED_64)
        return np.frombuffer(self._content, np.uint8, length, start) if length else None

    def _op(self, op: Fields, tensors: int) -> Op:
        kind = self._codes[op.unsigned(0)]
        options = self._options(op, 4, _OPTIONS.get(op.byte(3))) | self._options(op, 12, _OPTIONS_2.get(op.byte(11)))
        calls = tuple(int(options[name]) for name in CALLS.get(kind, ()))
        if name := options.get("sharedName"):
            _name(name)
        if any(not 0 <= index < len(self._subgraphs) for index in calls):
            raise IndexError(f"{kind} calls a subgraph that does not exist")
        inputs, outputs = (_within(op.integers(slot), tensors) for slot in (1, 2))
        return Op(kind, inputs, outputs, options, op.text(5), calls)

    def _options(self, op: Fields, slot: int, kind: Any) -> dict[str, Any]:
        if kind is None or not op.present(slot):
            return {}
        options: dict[str, Any] = vars(kind.InitFromBuf(self._content, op.table(slot).position))
        return options

    def _entry_point(self, signature: Fields, subgraphs: tuple[Subgraph, ...]) -> EntryPoint:
        index = signature.unsigned(4)
        inputs, outputs = (
            {_name(entry.text(0)): entry.unsigned(1) for entry in self._tables(signature, slot)} for slot in (0, 1)
        )
        _within((*inputs.values(), *outputs.values()), len(subgraphs[index].tensors))
        return EntryPoint(_name(signature.text(2)), index, inputs, outputs)


def _main(subgraph: Subgraph) -> EntryPoint:
    inputs, outputs = (
        {subgraph.tensors[i].name or f"{side}_{number}": i for number, i in enumerate(indices) if i >= 0}
        for side, indices in (("input", subgraph.inputs), ("output", subgraph.outputs))
    )
    return EntryPoint(MAIN, 0, inputs, outputs, declared=False)


def _within(indices: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return indices of tensors; -1 marks one that is left out."""
    if indices and not -1 <= min(indices) <= max(indices) < count:
        raise IndexError("the index of a tensor that does not exist")
    return indices


def _name(value: bytes | None) -> str:
    """Return the name of a signature, an input or a variable, which messages show."""
    text = (value or b"").decode()
    if not text or len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError("the name of a signature, an input or a variable is unreadable")
    return text


def text_of(value: bytes | str | None) -> str:
    """Return a text of a file; empty if it is absent."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
