"""The typed graph of any `.tflite` file: subgraphs, tensors, ops, variables and signatures.

`graph_reader.read_graph` reads it from a file's bytes. Nothing here runs the model or allocates memory of a declared size:
constants are views of the file's bytes.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ModelError
from odt_sim.model.reading import node_def

READS = ("READ_VARIABLE", "FlexReadVariableOp")
ASSIGNS = ("ASSIGN_VARIABLE", "FlexAssignVariableOp", "FlexAssignAddVariableOp", "FlexAssignSubVariableOp")
HANDLES = ("VAR_HANDLE", "FlexVarHandleOp")
RANDOM = ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL")
"""Ops with their own random sequence, which a copy of the op starts again."""

ACTIVATIONS = ("Relu", "Relu6", "Maximum", "Minimum")
"""TensorFlow's ops that its converter may fuse into a product; the last two are the bounds of hard_tanh."""

CALLS = {
    "WHILE": ("condSubgraphIndex", "bodySubgraphIndex"),
    "IF": ("thenSubgraphIndex", "elseSubgraphIndex"),
    "CALL": ("subgraph",),
    "CALL_ONCE": ("initSubgraphIndex",),
    "STABLEHLO_WHILE": ("condSubgraphIndex", "bodySubgraphIndex"),
    "STABLEHLO_COMPOSITE": ("decompositionSubgraphIndex",),
}
"""Ops that run other subgraphs, and their options with the subgraphs' indices."""

CONTROL = frozenset(CALLS) - {"CALL_ONCE"}
"""Ops of `CALLS` that run their subgraphs in each call; the subgraphs may read and set variables."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a subgraph.

    Attributes:
        name: Its name in the graph; not unique.
        shape: The shape that LiteRT allocates first.
        shape_signature: The declared shape; -1 for a size that is not fixed.
        dtype: The numpy name, such as `float32`; also `string`, `resource` and `variant`.
        data: The bytes of a constant; None for a computed tensor.
        quantized: Whether it has quantization parameters.
    """

    name: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...]
    dtype: str
    data: NDArray[np.uint8] | None
    quantized: bool

    @property
    def constant(self) -> bool:
        """Whether the file contains its value."""
        return self.data is not None

    def value(self) -> NDArray[Any]:
        """Return a constant's value, a read-only view of the file's bytes.

        Raises:
            ModelError: The tensor is not a constant, numpy lacks its dtype, or the bytes do not fill its shape.
        """
        try:
            array = np.frombuffer(b"" if self.data is None else self.data.data, np.dtype(self.dtype))
            return array.reshape(self.shape)
        except (TypeError, ValueError) as error:
            size = 0 if self.data is None else self.data.size
            raise ModelError(
                f"tensor {self.name!r}: expected a constant {self.dtype} {list(self.shape)}, found {size} bytes"
            ) from error

    @property
    def fixed(self) -> bool:
        """Whether all sizes are fixed."""
        return min(self.shape_signature, default=0) >= 0

    @property
    def text(self) -> str:
        """The dtype and the declared shape, such as `float32[?, 28, 28]`."""
        sizes = ", ".join("?" if size < 0 else str(size) for size in self.shape_signature[:8])
        return f"{self.dtype}[{sizes}{', ..' if len(self.shape_signature) > 8 else ''}]"


@dataclass(frozen=True, eq=False)
class Op:
    """An operation of a subgraph.

    Attributes:
        kind: The builtin op's name, such as `FULLY_CONNECTED`, else the custom op's own, such as `FlexSoftplusGrad`.
        inputs: Indices of tensors of the subgraph; -1 for an input that is left out.
        outputs: Indices of tensors of the subgraph.
        options: The builtin options by the names of the schema's Python classes, such as `fusedActivationFunction`.
        custom_options: The bytes of a custom op's options; empty for a builtin op.
        calls: The subgraphs that it runs; those of `CALL_ONCE` run only in the first call.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    custom_options: bytes
    calls: tuple[int, ...]

    @property
    def flex(self) -> bool:
        """Whether it is an op of full TensorFlow, which LiteRT cannot run."""
        return self.kind.startswith("Flex")

    @property
    def node_def(self) -> bytes:
        """The serialized NodeDef of a Flex op; empty for any other op, and for a damaged one."""
        return node_def.of_custom_options(self.custom_options) if self.flex else b""

    @property
    def passed(self) -> tuple[int, ...]:
        """The inputs that a calling op passes to its subgraphs, in their order."""
        return self.inputs[1:] if self.kind == "IF" else self.inputs


@dataclass(frozen=True, eq=False)
class Subgraph:
    """A function: tensors, ops in the order of execution, and the indices of inputs and outputs."""

    name: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @cached_property
    def producers(self) -> dict[int, Op]:
        """The op that computes a tensor, by the tensor's index."""
        return {tensor: op for op in self.ops for tensor in op.outputs}


@dataclass(frozen=True)
class EntryPoint:
    """A signature: its subgraph, and the indices of its tensors by the names that callers use.

    Attributes:
        name: The signature's name.
        subgraph: The subgraph's index.
        inputs: Tensors by name.
        outputs: Tensors by name.
        declared: Whether the file declares it; False for the main subgraph of a file without signatures.
    """

    name: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    declared: bool = True


class Handle(NamedTuple):
    """The identity of a variable: all handles with the same container and name share one value."""

    container: str
    name: str


@dataclass(frozen=True, eq=False)
class Variable:
    """A value that persists between calls.

    Attributes:
        handle: Its identity.
        shape: The shape of its value as declared where it is read, assigned or initialized; None if nothing declares it.
        dtype: The numpy name of its value's dtype; None if nothing declares it.
        read_by: The signatures that read it, in the file's order.
        assigned_by: The signatures that assign it, in the file's order.
        initialized: Whether an initializer (`CALL_ONCE`) assigns it.
        initial: The constant that the initializer assigns; None if there is none or it is computed.
    """

    handle: Handle
    shape: tuple[int, ...] | None
    dtype: str | None
    read_by: tuple[str, ...]
    assigned_by: tuple[str, ...]
    initialized: bool
    initial: Tensor | None

    @property
    def name(self) -> str:
        """The name of the handle, such as `dense/kernel`."""
        return self.handle.name

    @property
    def size(self) -> int:
        """The number of elements; 0 if the shape is unknown."""
        return prod(self.shape) if self.shape is not None else 0


@dataclass(frozen=True, eq=False)
class Graph:
    """The graph of a `.tflite` file.

    Attributes:
        subgraphs: The functions; the first is the main one.
        signatures: The entry points by name; the main subgraph as `main` where the file declares none.
        metadata: The metadata entries by name.
        description: The file's own description.
    """

    subgraphs: tuple[Subgraph, ...]
    signatures: Mapping[str, EntryPoint]
    metadata: Mapping[str, bytes]
    description: str

    def subgraph(self, signature: str) -> Subgraph:
        """Return the subgraph of a signature."""
        return self.subgraphs[self.signatures[signature].subgraph]

    def reachable(self, index: int) -> tuple[int, ...]:
        """Return a subgraph and all that it runs in every call, each once, even if they call each other in a cycle."""
        found, waiting = {index: None}, [index]
        while waiting:
            for op in self.subgraphs[waiting.pop()].ops:
                new = [i for i in op.calls if op.kind != "CALL_ONCE" and i not in found]
                found.update(dict.fromkeys(new))
                waiting.extend(new)
        return tuple(found)

    def ops(self, signature: str) -> Iterator[Op]:
        """Yield the ops of a signature, and of the subgraphs that it calls."""
        for index in self.reachable(self.signatures[signature].subgraph):
            yield from self.subgraphs[index].ops

    def flex_ops(self, signature: str) -> tuple[str, ...]:
        """Return the kinds of Flex ops in a signature, in alphabetical order."""
        return tuple(sorted({op.kind for op in self.ops(signature) if op.flex}))

    @cached_property
    def initializers(self) -> tuple[int, ...]:
        """The subgraphs that `CALL_ONCE` runs, in the order of their first appearance."""
        ops = (op for subgraph in self.subgraphs for op in subgraph.ops)
        return tuple(dict.fromkeys(index for op in ops if op.kind == "CALL_ONCE" for index in op.calls))

    @cached_property
    def handles(self) -> tuple[Mapping[int, Handle], ...]:
        """By subgraph, the variables' identities by the tensors of their handles, including passed-on handles."""
        found: list[dict[int, Handle]] = [{} for _ in self.subgraphs]
        for index, subgraph in enumerate(self.subgraphs):
            for op in subgraph.ops:
                if op.kind in HANDLES and op.outputs:
                    found[index][op.outputs[0]] = _handle(op)
        waiting = list(range(len(found)))
        while waiting:
            index = waiting.pop()
            for op in self.subgraphs[index].ops:
                for callee in op.calls:
                    for inside, outside in zip(self.subgraphs[callee].inputs, op.passed, strict=False):
                        if outside in found[index] and inside not in found[callee]:
                            found[callee][inside] = found[index][outside]
                            waiting.append(callee)
        return tuple(found)

    @cached_property
    def accesses(self) -> tuple[tuple["Access", ...], ...]:
        """By subgraph, the reads and assignments of variables in the order of execution."""
        found: list[list[Access]] = [[] for _ in self.subgraphs]
        for subgraph, handles, accesses in zip(self.subgraphs, self.handles, found, strict=True):
            for op in subgraph.ops:
                value = op.outputs[:1] if op.kind in READS else op.inputs[1:2] if op.kind in ASSIGNS else ()
                if value and value[0] >= 0 and op.inputs and op.inputs[0] in handles:
                    handle, tensor = handles[op.inputs[0]], subgraph.tensors[value[0]]
                    accesses.append(Access(handle, op.kind in ASSIGNS, op, value[0], tensor))
        return tuple(map(tuple, found))

    def read_by(self, signature: str) -> tuple[Handle, ...]:
        """Return the variables that a signature reads, in the order of the first reads."""
        return self._touched(self.signatures[signature].subgraph, assigns=False)

    def assigned_by(self, signature: str) -> tuple[Handle, ...]:
        """Return the variables that a signature assigns, in the order of the first assignments."""
        return self._touched(self.signatures[signature].subgraph, assigns=True)

    def _touched(self, index: int, assigns: bool) -> tuple[Handle, ...]:
        found = (access for i in self.reachable(index) for access in self.accesses[i])
        return tuple(dict.fromkeys(access.handle for access in found if access.assigns == assigns))

    @cached_property
    def variables(self) -> Mapping[Handle, Variable]:
        """All variables by identity, in the order of the file's handles."""
        read_by, assigned_by, tensors = (defaultdict[Handle, list[Any]](list) for _ in range(3))
        for name in self.signatures:
            for touched, handles in ((read_by, self.read_by(name)), (assigned_by, self.assigned_by(name))):
                for handle in handles:
                    touched[handle].append(name)
        for access in (access for found in self.accesses for access in found):
            tensors[access.handle].append(access.tensor)
        reached = dict.fromkeys(i for index in self.initializers for i in self.reachable(index))
        set_first = [access for i in reached for access in self.accesses[i] if access.assigns]
        initial = {access.handle: access.tensor if access.tensor.constant else None for access in set_first}
        return {
            handle: Variable(
                handle,
                *_form(tensors[handle]),
                read_by=tuple(read_by[handle]),
                assigned_by=tuple(assigned_by[handle]),
                initialized=handle in initial,
                initial=initial.get(handle),
            )
            for handle in dict.fromkeys(handle for found in self.handles for handle in found.values())
        }


def operator_counts(graph: Graph, signature: str) -> dict[str, int]:
    """Return the number of ops of each kind in a signature's subgraph; custom and Flex ops by their own names."""
    return dict(sorted(Counter(op.kind for op in graph.subgraph(signature).ops).items()))


def uninitialized_variables(graph: Graph) -> list[str]:
    """Return the names of variables that signatures read and no initializer sets; LiteRT would read arbitrary memory."""
    return sorted(v.name for v in graph.variables.values() if v.read_by and not v.initialized)


def unrestored_variables(graph: Graph, signatures: Collection[str]) -> list[str]:
    """Return the names of variables that training changes and reads, and no signature of the contract sets.

    The host cannot save and restore them, so devices that share an interpreter would share their values.

    Args:
        graph: The file's graph.
        signatures: The names of the signatures to consider.
    """

    def trains(name: str) -> bool:
        return name in signatures and (name in ("train", "head_train") or name.startswith("train_"))

    restoring = {"restore", "restore_optimizer_state"} & set(signatures)
    found = [
        v for v in graph.variables.values() if any(map(trains, v.assigned_by)) and set(v.read_by) & set(signatures)
    ]
    return sorted(v.name for v in found if not restoring & set(v.assigned_by))


class Access(NamedTuple):
    """A read or an assignment of a variable.

    Attributes:
        handle: The variable.
        assigns: Whether it is an assignment.
        op: The op.
        place: The index of the tensor that is read or assigned.
        tensor: That tensor.
    """

    handle: Handle
    assigns: bool
    op: Op
    place: int
    tensor: Tensor


def _handle(op: Op) -> Handle:
    if op.kind == "VAR_HANDLE":
        names = (op.options.get("container"), op.options.get("sharedName"))
        return Handle(*((name or b"").decode(errors="replace") for name in names))
    texts = node_def.texts(op.node_def)
    return Handle(texts.get("container", ""), texts.get("shared_name") or texts["name"])


def _form(tensors: list[Tensor]) -> tuple[tuple[int, ...] | None, str | None]:
    """Return the shape and the dtype of a variable's value, if possible from a tensor whose sizes are all fixed."""
    if not tensors:
        return None, None
    best = next((t for t in tensors if t.constant), None) or next((t for t in tensors if t.fixed), tensors[0])
    return best.shape_signature, best.dtype
