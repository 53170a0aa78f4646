"""Declarations of a `.tflite` file.

A `.tflite` file is a flatbuffer; its schema comes with the package `ai_edge_litert`. Nothing here runs the model.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from odt_sim.model.reading.graph import (
    EntryPoint,
    Graph,
    operator_counts,
    uninitialized_variables,
    unrestored_variables,
)
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.reading.inputs import scales, vocabularies

SETTERS = {"restore": "weights", "restore_optimizer_state": "slots"}
"""What a signature sets, by the signature."""


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

    @property
    def form(self) -> str:
        """The dtype and the shape, for messages."""
        return f"{self.dtype} {shape_text(self.shape)}"

    def has_rows_of(self, other: "TensorInfo") -> bool:
        """Return whether the dtype and the shape of one row are those of another tensor."""
        return (self.shape[1:], self.dtype) == (other.shape[1:], other.dtype)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape for a message; a damaged file may declare very many axes."""
    return str(list(shape)) if len(shape) <= 8 else f"of {len(shape)} axes"


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
        vocabularies: The number of ids that an input of `infer` takes, by its name; see `odt_sim.model.reading.inputs`.
        scales: The factor by which `infer` first multiplies an input, by its name; see `odt_sim.model.reading.inputs`.
        changes: By signature, which of `weights` and `slots` it changes.
        uninitialized: The variables that a signature reads and no initializer sets.
        unrestored: The variables that `train` changes and reads, and no signature sets.
        metadata: The metadata entries by name.
    """

    signatures: dict[str, Signature]
    operators: dict[str, dict[str, int]]
    vocabularies: dict[str, int]
    scales: dict[str, float]
    changes: dict[str, frozenset[str]]
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
    graph = read_graph(content, where)
    declared = {name: entry for name, entry in graph.signatures.items() if entry.declared}
    return FlatModel(
        signatures={name: _signature(graph, entry) for name, entry in declared.items()},
        operators={name: operator_counts(graph, name) for name in declared},
        vocabularies=vocabularies(graph, "infer") if "infer" in declared else {},
        scales=scales(graph, "infer") if "infer" in declared else {},
        changes=_changes(graph, declared),
        uninitialized=uninitialized_variables(graph),
        unrestored=unrestored_variables(graph, declared),
        metadata=dict(graph.metadata),
    )


def fingerprint(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _changes(graph: Graph, declared: Iterable[str]) -> dict[str, frozenset[str]]:
    assigned = {name: set(graph.assigned_by(name)) for name in declared}
    return {
        name: frozenset(what for setter, what in SETTERS.items() if assigned.get(setter, set()) & changed)
        for name, changed in assigned.items()
    }


def _signature(graph: Graph, entry: EntryPoint) -> Signature:
    tensors = graph.subgraphs[entry.subgraph].tensors
    return Signature(
        *(
            {name: TensorInfo(name, tensors[i].shape_signature, tensors[i].dtype) for name, i in side.items()}
            for side in (entry.inputs, entry.outputs)
        )
    )
