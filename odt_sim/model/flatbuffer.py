"""Declarations and metadata of a `.tflite` file.

A `.tflite` file is a flatbuffer; its schema comes with the package `ai_edge_litert`. Nothing here runs the model.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim.errors import ModelError
from odt_sim.model.graph import operator_counts, uninitialized_variables, unrestored_variables

IDENTIFIER = b"TFL3"
UNREADABLE = (
    *(struct.error, IndexError, TypeError, ValueError, AttributeError, KeyError, OverflowError, RecursionError),
)
"""The exceptions that a damaged flatbuffer causes."""

_DTYPES = {value: name.lower() for name, value in vars(schema.TensorType).items() if not name.startswith("_")}


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a signature.

    Attributes:
        name: Its name in the signature.
        shape: The declared shape; -1 for a size that is not fixed.
        dtype: The numpy name, such as `float32`; `string` for text.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of an entry point, by name."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]


@dataclass(frozen=True)
class FlatModel:
    """The declarations of a `.tflite` file.

    Attributes:
        signatures: The entry points by name.
        operators: By signature, the number of ops of each kind; custom and Flex ops by their own names.
        uninitialized: The variables that a signature reads and no initializer sets.
        unrestored: The variables that `train` changes and reads, and no signature sets.
        metadata: The metadata entries by name.
    """

    signatures: dict[str, Signature]
    operators: dict[str, dict[str, int]]
    uninitialized: list[str]
    unrestored: list[str]
    metadata: dict[str, bytes]


def read(content: bytes, where: str) -> FlatModel:
    """Read the declarations of a `.tflite` file.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.

    Raises:
        ModelError: The bytes are not a readable `.tflite` file.
    """
    if content[4:8] != IDENTIFIER:
        raise ModelError(f"{where}: not a .tflite file (expected the mark TFL3 at byte 4, found {content[4:8]!r})")
    try:
        model = schema.Model.GetRootAs(content, 0)
        signatures = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
        indices = {_text(s.SignatureKey()): s.SubgraphIndex() for s in signatures}
        return FlatModel(
            signatures={_text(s.SignatureKey()): _signature(model, s) for s in signatures},
            operators={name: operator_counts(model, index) for name, index in indices.items()},
            uninitialized=uninitialized_variables(model, list(indices.values())),
            unrestored=unrestored_variables(model, indices),
            metadata=_metadata(model),
        )
    except UNREADABLE as error:
        raise ModelError(f"{where}: damaged .tflite file ({error}); copy or export it again") from error


def with_metadata(content: bytes, name: str, data: bytes) -> bytes:
    """Return the file's bytes with one metadata entry added or replaced."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    model.metadata = [entry for entry in model.metadata or [] if _text(entry.name) != name]
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(data, np.uint8)
    entry.name, entry.buffer = name, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata.append(entry)
    builder = flatbuffers.Builder(len(content) + len(data) + 1024)
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def fingerprint(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _text(value: bytes | str | None) -> str:
    if value is None:
        raise ValueError("a name is missing")
    return value.decode() if isinstance(value, bytes) else value


def _tensor(model: Any, subgraph: Any, entry: Any) -> TensorInfo:
    tensor = subgraph.Tensors(entry.TensorIndex())
    dynamic = tensor.ShapeSignatureLength() > 0
    shape = tensor.ShapeSignatureAsNumpy() if dynamic else tensor.ShapeAsNumpy()
    sizes = tuple(int(size) for size in shape) if isinstance(shape, np.ndarray) else ()
    return TensorInfo(_text(entry.Name()), sizes, _DTYPES[tensor.Type()])


def _signature(model: Any, signature: Any) -> Signature:
    subgraph = model.Subgraphs(signature.SubgraphIndex())
    inputs = [_tensor(model, subgraph, signature.Inputs(i)) for i in range(signature.InputsLength())]
    outputs = [_tensor(model, subgraph, signature.Outputs(i)) for i in range(signature.OutputsLength())]
    return Signature({t.name: t for t in inputs}, {t.name: t for t in outputs})


def _metadata(model: Any) -> dict[str, bytes]:
    entries = {}
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        data = model.Buffers(entry.Buffer()).DataAsNumpy()
        entries[_text(entry.Name())] = data.tobytes() if isinstance(data, np.ndarray) else b""
    return entries
