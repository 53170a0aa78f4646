"""Read the typed graph of a `.tflite` file; any bytes end in a graph or in one line."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim.errors import ModelError
from odt_sim.model.flatbuffer_fields import Fields
from odt_sim.model.graph import EntryPoint, Graph, Op, Subgraph, Tensor

IDENTIFIER = b"TFL3"
MAIN = "main"  # the name of the entry point of a file without signatures
LARGEST = 1_000_000
"""The most tensors and ops of a file; LiteRT's largest models have some ten thousand."""

LONGEST_NAME = 1000

OTHERS = {
    b"PK\x03\x04": "a zip archive, such as a .keras file, a PyTorch model or a zipped SavedModel",
    b"\x89HDF": "an HDF5 file, such as a Keras .h5 model",
    b"\x08\x01\x12": "a SavedModel's protocol buffer",
    b"\x80\x02": "a Python pickle, such as an old PyTorch model",
}
"""What begins with these bytes; ONNX files have no mark."""

_KINDS = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
_DTYPES = {value: name.lower() for name, value in vars(schema.TensorType).items() if not name.startswith("_")}
_OPTIONS, _OPTIONS_2 = (
    {value: getattr(schema, f"{name}T", None) for name, value in vars(kind).items() if not name.startswith("_")}
    for kind in (schema.BuiltinOptions, schema.BuiltinOptions2)
)
_CALLS = {  # the options that hold the subgraphs that an op runs
    "WHILE": ("condSubgraphIndex", "bodySubgraphIndex"),
    "IF": ("thenSubgraphIndex", "elseSubgraphIndex"),
    "CALL": ("subgraph",),
    "CALL_ONCE": ("initSubgraphIndex",),
    "STABLEHLO_WHILE": ("condSubgraphIndex", "bodySubgraphIndex"),
    "STABLEHLO_COMPOSITE": ("decompositionSubgraphIndex",),
}


def read_graph(content: bytes, where: str) -> Graph:
    """Read the graph of any `.tflite` file, also of one that only infers or that needs Flex ops.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.

    Raises:
        ModelError: The bytes are no readable `.tflite` file.
    """
    check_identifier(content, where)
    try:
        return _Reader(content).graph()
    except Exception as error:  # a damaged flatbuffer causes any exception
        raise damaged(where, error) from error


def damaged(where: str, error: Exception) -> ModelError:
    """Return the error for a file whose flatbuffer cannot be followed."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return ModelError(f"{where}: damaged .tflite file ({reason}); copy or export it again")


def has_metadata(content: bytes, name: str) -> bool:
    """Return whether a file has a metadata entry, without reading its graph; False for a damaged file."""
    try:
        model = schema.Model.GetRootAs(content, 0)
        count = min(model.MetadataLength(), len(content))
        return any(_text(model.Metadata(i).Name()) == name for i in range(count))
    except Exception:  # a damaged flatbuffer causes any exception
        return False


def check_identifier(content: bytes, where: str) -> None:
    """Check that a file begins as a `.tflite` file.

    Raises:
        ModelError: It does not.
    """
    if content[4:8] != IDENTIFIER:
        kind = next((text for mark, text in OTHERS.items() if content.startswith(mark)), "")
        found = f"found {content[4:8]!r}" + (f", {kind}" if kind else "")
        raise ModelError(f"{where}: not a .tflite file (expected the mark TFL3 at byte 4, {found})")


class _Reader:
    """Reads a flatbuffer whose counts and indices may be wrong."""

    def __init__(self, content: bytes) -> None:
        self._content, self._count = content, 0
        self._model = schema.Model.GetRootAs(content, 0)
        self._buffers = self._model.BuffersLength()
        self._codes = [self._kind(code) for code in self._each(self._model.OperatorCodes, "OperatorCodes")]

    def graph(self) -> Graph:
        count = self._model.SubgraphsLength()
        subgraphs = tuple(self._subgraph(s, count) for s in self._each(self._model.Subgraphs, "Subgraphs"))
        declared = [self._entry_point(s, subgraphs) for s in self._each(self._model.SignatureDefs, "SignatureDefs")]
        entry_points = declared or [_main(subgraph) for subgraph in subgraphs[:1]]
        entries = self._each(self._model.Metadata, "Metadata")
        metadata = {_text(entry.Name()): self._data(entry.Buffer()) for entry in entries}
        return Graph(
            subgraphs,
            {entry.name: entry for entry in entry_points},
            {name: b"" if data is None else data.tobytes() for name, data in metadata.items()},
            _text(self._model.Description()),
        )

    def _each(self, item: Callable[[int], Any], name: str, of: Any = None) -> Iterator[Any]:
        """Yield the items of a vector of the file, within the limit."""
        length = getattr(of or self._model, f"{name}Length")()
        self._count += length
        if self._count > min(LARGEST, len(self._content)):
            raise ValueError(f"more than {min(LARGEST, len(self._content)):,} tensors and ops")
        return (item(i) for i in range(length))

    def _kind(self, code: Any) -> str:
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        return _text(code.CustomCode()) or _KINDS.get(number, str(number))

    def _subgraph(self, subgraph: Any, count: int) -> Subgraph:
        tensors = tuple(self._tensor(t) for t in self._each(subgraph.Tensors, "Tensors", subgraph))
        ops = tuple(self._op(op, len(tensors), count) for op in self._each(subgraph.Operators, "Operators", subgraph))
        inputs, outputs = (_indices(v, len(tensors)) for v in (subgraph.InputsAsNumpy(), subgraph.OutputsAsNumpy()))
        return Subgraph(_text(subgraph.Name()), tensors, ops, inputs, outputs)

    def _tensor(self, tensor: Any) -> Tensor:
        fields = Fields(self._content, tensor._tab.Pos)
        shape = fields.integers(0)
        return Tensor(
            name=_text(fields.text(3)),
            shape=shape,
            shape_signature=fields.integers(7) or shape,
            dtype=_DTYPES[fields.byte(1)],
            data=self._data(fields.unsigned(2)),
            quantized=fields.present(4) and tensor.Quantization().ScaleLength() > 0,
        )

    def _data(self, index: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
        """Return a view of a buffer; None for an empty one."""
        if not 0 <= index < self._buffers:
            raise IndexError(f"no buffer {index}")
        buffer = self._model.Buffers(index)
        fields = Fields(self._content, buffer._tab.Pos)
        if fields.present(1) and buffer.Offset() > 1:  # a file above 2 GB keeps its buffers behind the flatbuffer
            return np.frombuffer(self._content, np.uint8, buffer.Size(), buffer.Offset())
        data = buffer.DataAsNumpy() if fields.present(0) else None
        return data if isinstance(data, np.ndarray) and data.size else None

    def _op(self, op: Any, tensors: int, subgraphs: int) -> Op:
        fields = Fields(self._content, op._tab.Pos)
        kind = self._codes[fields.unsigned(0)]
        options = _options(op.BuiltinOptions(), _OPTIONS.get(fields.byte(3))) if fields.present(4) else {}
        if fields.present(12):
            options = options | _options(op.BuiltinOptions2(), _OPTIONS_2.get(fields.byte(11)))
        calls = tuple(int(options[name]) for name in _CALLS.get(kind, ()))
        if name := options.get("sharedName"):
            _name(name)
        if any(not 0 <= index < subgraphs for index in calls):
            raise IndexError(f"{kind} calls a subgraph that does not exist")
        inputs, outputs = (_within(fields.integers(slot), tensors) for slot in (1, 2))
        return Op(kind, inputs, outputs, options, fields.text(5), calls)

    def _entry_point(self, signature: Any, subgraphs: tuple[Subgraph, ...]) -> EntryPoint:
        subgraph = subgraphs[signature.SubgraphIndex()]
        names = []
        for side in ("Inputs", "Outputs"):
            entries = list(self._each(getattr(signature, side), side, signature))
            _indices(np.array([entry.TensorIndex() for entry in entries], np.int64), len(subgraph.tensors))
            names.append({_name(entry.Name()): int(entry.TensorIndex()) for entry in entries})
        inputs, outputs = names
        return EntryPoint(_name(signature.SignatureKey()), signature.SubgraphIndex(), inputs, outputs)


def _main(subgraph: Subgraph) -> EntryPoint:
    inputs, outputs = (
        {subgraph.tensors[i].name or f"{side}_{number}": i for number, i in enumerate(indices) if i >= 0}
        for side, indices in (("input", subgraph.inputs), ("output", subgraph.outputs))
    )
    return EntryPoint(MAIN, 0, inputs, outputs, declared=False)


def _options(table: Any, kind: Any) -> dict[str, Any]:
    return vars(kind.InitFromBuf(table.Bytes, table.Pos)) if table is not None and kind is not None else {}


def _indices(values: Any, count: int) -> tuple[int, ...]:
    """Return indices of tensors; -1 marks one that is left out."""
    return _within(_numbers(values), count)


def _within(indices: tuple[int, ...], count: int) -> tuple[int, ...]:
    if indices and not -1 <= min(indices) <= max(indices) < count:
        raise IndexError("the index of a tensor that does not exist")
    return indices


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(values.tolist()) if isinstance(values, np.ndarray) else ()


def _name(value: bytes | None) -> str:
    """Return the name of a signature, an input or a variable, which messages show."""
    text = (value or b"").decode()
    if not text or len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError("the name of a signature, an input or a variable is unreadable")
    return text


def _text(value: bytes | str | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
