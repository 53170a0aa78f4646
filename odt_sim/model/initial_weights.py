"""Write trained weights into a `.tflite` file as the initial values of its variables."""

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from odt_sim.errors import ModelError
from odt_sim.model.editing import OPS, handles_of, initializers, operators_of, packed, unpacked
from odt_sim.model.flatbuffer import fingerprint
from odt_sim.model.manifest import METADATA_NAME, Manifest
from odt_sim.model.weights import Weights


def with_initial_weights(content: bytes, weights: Weights, where: str = "model") -> bytes:
    """Return a trainable model's file that starts with other weights; optimizer slots start as before.

    Args:
        content: The file's bytes.
        weights: All weights of the model, frozen ones included.
        where: The file's name, for errors.

    Raises:
        ModelError: A weight is not the value of a variable that the file initializes by a constant.
    """
    model = unpacked(content)
    values = dict(zip(_variables(model), weights.tensors(), strict=False))
    written = set(_initialize(model, values))
    if len(values) < len(weights.layout.parameters) or written < values.keys():
        raise ModelError(
            f"{where}: cannot store trained weights; expected 'parameters' to return initialized variables"
        )
    _sign(model, where)
    return packed(model)


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


def _initialize(model: Any, values: dict[bytes, NDArray[np.float32]]) -> Iterator[bytes]:
    """Replace the constants that initializers assign to variables; yield the names of these variables."""
    buffers = Counter(tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors)
    for index in initializers(model):
        subgraph = model.subgraphs[index]
        handles = handles_of(model, subgraph)
        uses = Counter(int(i) for operator in subgraph.operators for i in operator.inputs)
        for operator in operators_of(model, subgraph, OPS.ASSIGN_VARIABLE):
            handle, constant = map(int, operator.inputs)
            name = handles.get(handle)
            tensor = subgraph.tensors[constant]
            if name not in values or model.buffers[tensor.buffer].data is None:
                continue
            if uses[constant] > 1 or buffers[tensor.buffer] > 1:  # another variable starts with the same constant
                tensor = copy(tensor)
                tensor.buffer = len(model.buffers)
                model.buffers.append(schema.BufferT())
                operator.inputs = np.array([handle, len(subgraph.tensors)], np.int32)
                subgraph.tensors.append(tensor)
            model.buffers[tensor.buffer].data = np.frombuffer(values[name].tobytes(), np.uint8)
            yield name


def _sign(model: Any, where: str) -> None:
    """Update the fingerprint in the manifest, which is that of the file without it."""
    for entry in model.metadata or []:
        if entry.name == METADATA_NAME.encode():
            buffer = model.buffers[entry.buffer]
            manifest = Manifest.from_json(bytes(buffer.data), where)
            buffer.data = None
            text = replace(manifest, fingerprint=fingerprint(packed(model))).to_json()
            buffer.data = np.frombuffer(text.encode(), np.uint8)
