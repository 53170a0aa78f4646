"""Write trained weights into a `.tflite` file as the initial values of its variables."""

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim.errors import ModelError
from odt_sim.model.editing import OPS, handles_of, initializers, operators_of, packed, unpacked
from odt_sim.model.flatbuffer import fingerprint
from odt_sim.model.flatbuffer_fields import BUFFERS, Fields
from odt_sim.model.manifest import METADATA_NAME, Manifest
from odt_sim.model.weights import Layout, Weights

REMEMBERED = 4 << 20
"""The largest file, in bytes, whose form is cached: larger ones take memory, and caching saves less of their time."""


def with_initial_weights(content: bytes, weights: Weights, where: str = "model") -> bytes:
    """Return a trainable model's file that starts with other weights; optimizer slots start as before.

    Args:
        content: The file's bytes.
        weights: All weights of the model, frozen ones included.
        where: The file's name, for errors.

    Raises:
        ModelError: A weight is not the value of a variable that the file initializes by a constant.
    """
    form = _form if len(content) <= REMEMBERED else _form.__wrapped__
    return form(content, weights.layout, where).filled(weights)


@dataclass(frozen=True)
class _Blank:
    """A file with places for the weights.

    Attributes:
        content: The file's bytes.
        places: Where each weight starts, and its name; a weight may have several places.
    """

    content: bytes
    places: tuple[tuple[int, str], ...]

    def filled(self, weights: Weights) -> bytearray:
        content = bytearray(self.content)
        for start, name in self.places:
            data = weights[name].tobytes()
            content[start : start + len(data)] = data
        return content


@dataclass(frozen=True)
class _Form:
    """The common part of a model's files with different weights.

    Attributes:
        file: The file.
        unsigned: The file without its manifest, of which the manifest contains the fingerprint; None without a
            manifest.
        signature: The position of the fingerprint in the file.
    """

    file: _Blank
    unsigned: _Blank | None = None
    signature: int = 0

    def filled(self, weights: Weights) -> bytes:
        content = self.file.filled(weights)
        if self.unsigned is not None:
            sign = fingerprint(bytes(self.unsigned.filled(weights))).encode()
            content[self.signature : self.signature + len(sign)] = sign
        return bytes(content)


@lru_cache(maxsize=4)
def _form(content: bytes, layout: Layout, where: str) -> _Form:
    """Return the form of a model's files.

    Reading and writing a file's ops takes up to a second, and deploying a fleet writes a file for each device.
    """
    model = unpacked(content)
    names = dict(zip(_variables(model), layout.names, strict=False))
    buffers = list(_initialize(model, names, Weights.zeros(layout)))
    if len(names) < len(layout.parameters) or {name for _, name in buffers} < set(names.values()):
        raise ModelError(
            f"{where}: cannot store trained weights; expected 'parameters' to return initialized variables"
        )
    entry = next((entry for entry in model.metadata or [] if entry.name == METADATA_NAME.encode()), None)
    if entry is None:
        return _Form(_blank(model, buffers))
    buffer, sign = model.buffers[entry.buffer], fingerprint(content)
    manifest = Manifest.from_json(bytes(buffer.data), where)
    buffer.data = None
    unsigned = _blank(model, buffers)
    text = replace(manifest, fingerprint=sign).to_json().encode()
    buffer.data = np.frombuffer(text, np.uint8)
    file = _blank(model, buffers)
    return _Form(file, unsigned, _starts(file.content)[entry.buffer] + text.index(sign.encode()))


def _blank(model: Any, buffers: list[tuple[int, str]]) -> _Blank:
    content = packed(model)
    starts = _starts(content)
    return _Blank(content, tuple((starts[buffer], name) for buffer, name in buffers))


def _starts(content: bytes) -> list[int]:
    """Return the position of the data of each buffer of a file."""
    return [buffer.vector(0)[0] for buffer in Fields.root(content).tables(BUFFERS)]


def _variables(model: Any) -> list[bytes]:
    """Return the names of the variables that `parameters` returns, in the order `a0..aN`."""
    [signature] = (found for found in model.signatureDefs if found.signatureKey == b"parameters")
    subgraph = model.subgraphs[signature.subgraphIndex]
    handles = handles_of(model, subgraph)
    read = {
        int(operator.outputs[0]): handles[int(operator.inputs[0])]
        for operator in operators_of(model, subgraph, OPS.READ_VARIABLE)
        if int(operator.inputs[0]) in handles
    }
    for kind in (OPS.RESHAPE, OPS.GATHER):  # a scalar is returned through both
        copies = [
            (int(operator.outputs[0]), int(operator.inputs[0])) for operator in operators_of(model, subgraph, kind)
        ]
        read |= {output: read[source] for output, source in copies if source in read}
    outputs = {entry.name: entry.tensorIndex for entry in signature.outputs}
    names = (read.get(outputs.get(f"a{i}".encode(), -1)) for i in range(len(outputs)))
    return [name for name in names if name is not None]


def _initialize(model: Any, names: dict[bytes, str], weights: Weights) -> Iterator[tuple[int, str]]:
    """Replace the constants that initializers assign to variables; yield the buffer and the weight's name of each."""
    buffers = Counter(tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors)
    for index in initializers(model):
        subgraph = model.subgraphs[index]
        handles = handles_of(model, subgraph)
        uses = Counter(int(i) for operator in subgraph.operators for i in operator.inputs)
        for operator in operators_of(model, subgraph, OPS.ASSIGN_VARIABLE):
            handle, constant = map(int, operator.inputs)
            name = names.get(handles.get(handle, b""))
            tensor = subgraph.tensors[constant]
            if name is None or model.buffers[tensor.buffer].data is None:
                continue
            if uses[constant] > 1 or buffers[tensor.buffer] > 1:  # another variable starts with the same constant
                tensor = copy(tensor)
                tensor.buffer = len(model.buffers)
                model.buffers.append(schema.BufferT())
                operator.inputs = np.array([handle, len(subgraph.tensors)], np.int32)
                subgraph.tensors.append(tensor)
            model.buffers[tensor.buffer].data = np.frombuffer(weights[name].tobytes(), np.uint8)
            yield tensor.buffer, name
