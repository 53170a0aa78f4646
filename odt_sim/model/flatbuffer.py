"""Reads what a `.tflite` file says of itself, and writes its metadata.

A `.tflite` file is a flatbuffer whose schema the package `ai_edge_litert` carries. Nothing here runs the model.
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
"""What reading a damaged flatbuffer raises."""

_DTYPES = {
    value: name.lower() for name, value in vars(schema.TensorType).items() if not name.startswith("_")
}  # the schema's enumeration: FLOAT32 is 0, and so on


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a signature.

    Attributes:
        name: Its name in the signature.
        shape: Its shape as the file declares it; -1 where the size is not fixed.
        dtype: Its numpy name, such as `float32`; `string` for text.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Signature:
    """One entry point of a model: its inputs and outputs by name."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]


@dataclass(frozen=True)
class FlatModel:
    """What a `.tflite` file declares.

    Attributes:
        signatures: The entry points by name.
        operators: For each signature the number of ops of each kind; custom and Flex ops by their own names.
        uninitialized: The variables that a signature reads and that no initializer of the file sets.
        unrestored: The variables that `train` changes and reads, and that no signature sets.
        metadata: The metadata entries by name.
    """

    signatures: dict[str, Signature]
    operators: dict[str, dict[str, int]]
    uninitialized: list[str]
    unrestored: list[str]
    metadata: dict[str, bytes]


def read(content: bytes, where: str) -> FlatModel:
    """Reads the declarations of a `.tflite` file.

    Args:
        content: The file's bytes.
        where: The file's name, for the error.

    Raises:
        ModelError: The bytes are no readable `.tflite` file.
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
    """Returns the file's bytes with one metadata entry added, or replaced if there is one of this name."""
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
    """Returns the SHA-256 of a file's content, in hexadecimal."""
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
    found = {}
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        data = model.Buffers(entry.Buffer()).DataAsNumpy()
        found[_text(entry.Name())] = data.tobytes() if isinstance(data, np.ndarray) else b""
    return found
