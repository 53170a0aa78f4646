"""New subgraphs and signatures in a `.tflite` file, without TensorFlow.

Everything works on the schema's object form of a file, `schema.ModelT`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from math import prod
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.editing.tree import OPS, add_buffer, integers, made
from odt_sim.model.reading.graph import Handle, Variable

TYPES = schema.TensorType


def empty() -> Any:
    """Return a file without subgraphs in its object form."""
    model = schema.ModelT()
    model.version, model.description = 3, "odt_sim"
    model.operatorCodes, model.subgraphs, model.buffers = [], [], [schema.BufferT()]
    return model


def adopted(model: Any, other: Any) -> Any:
    """Return the main subgraph of another file for use in this one, and add its op codes and constants to this one."""
    codes, buffers = len(model.operatorCodes), len(model.buffers)
    model.operatorCodes.extend(other.operatorCodes)
    model.buffers.extend(other.buffers)
    subgraph = other.subgraphs[0]
    for operator in subgraph.operators:
        operator.opcodeIndex += codes
    for tensor in subgraph.tensors:
        tensor.buffer += buffers
    return subgraph


class NewSubgraph:
    """A subgraph that is added to a file op by op.

    Attributes:
        name: Its name.
        index: Its index.
    """

    def __init__(self, model: Any, name: str) -> None:
        """Add an empty subgraph."""
        self.name, self._model, self._inputs, self._outputs = name, model, dict[str, int](), dict[str, int]()
        self._subgraph = schema.SubGraphT()
        self._subgraph.name = name
        self._subgraph.tensors, self._subgraph.operators = [], []
        self._subgraph.inputs, self._subgraph.outputs = [], []
        self.index = len(model.subgraphs)
        model.subgraphs.append(self._subgraph)

    def call_once(self, initializers: Iterable[int]) -> None:
        """Run initializers before the first call."""
        for index in initializers:
            options = schema.CallOnceOptionsT()
            options.initSubgraphIndex = index
            self._op(OPS.CALL_ONCE, [], [], options)

    def read(self, variable: Variable) -> int:
        """Return the value of a variable."""
        value = self._tensor(variable.name, variable.shape or (), variable.dtype or "float32")
        self._op(OPS.READ_VARIABLE, [self._handle(variable.handle)], [value], schema.ReadVariableOptionsT())
        return value

    def assign(self, variable: Variable, value: int) -> None:
        """Set a variable."""
        self.set(self._handle(variable.handle), value)

    def set(self, handle: int, value: int) -> None:
        """Set the variable of a handle."""
        self._op(OPS.ASSIGN_VARIABLE, [handle, value], [], schema.AssignVariableOptionsT())

    def zeros(self, variable: Variable) -> int:
        """Return zeros of a variable's shape, without storing them."""
        shape, dtype = variable.shape or (), variable.dtype or "float32"
        dimensions = self.constant("shape", np.array(shape, np.int32))
        zero = self.constant("zero", np.zeros((), dtype))
        value = self._tensor("zeros", shape, dtype)
        self._op(OPS.FILL, [dimensions, zero], [value], schema.FillOptionsT())
        return value

    def cast(self, value: int, dtype: str) -> int:
        """Return a tensor's value in another type."""
        tensor = self._subgraph.tensors[value]
        options = schema.CastOptionsT()
        options.inDataType, options.outDataType = tensor.type, getattr(TYPES, dtype.upper())
        result = self._tensor("cast", tensor.shape, dtype)
        self._op(OPS.CAST, [value], [result], options)
        return result

    def gathered(self, scalar: int, dtype: str) -> int:
        """Return a scalar as the element of a vector."""
        vector, result = self._tensor("vector", [1], dtype), self._tensor("scalar", [], dtype)
        self._op(
            OPS.RESHAPE, [scalar, self.constant("shape", np.array([1], np.int32))], [vector], schema.ReshapeOptionsT()
        )
        self._op(OPS.GATHER, [vector, self.constant("index", np.array(0, np.int32))], [result], schema.GatherOptionsT())
        return result

    def input(self, name: str, shape: Sequence[int], dtype: str) -> int:
        """Return a new input."""
        self._inputs[name] = self._tensor(name, shape, dtype)
        return self._inputs[name]

    def input_like(self, name: str, subgraph: Any, tensor: int) -> int:
        """Return a new input with the form (type and shape) of another subgraph's tensor."""
        self._inputs[name] = self.copied(subgraph, tensor)
        return self._inputs[name]

    def stacked_input(self, name: str, subgraph: Any, tensor: int, count: int) -> int:
        """Return a new input with the form of another subgraph's tensor and a further first axis of `count`."""
        self._inputs[name] = self.stacked_form(subgraph, tensor, count)
        return self._inputs[name]

    def stacked_form(self, subgraph: Any, tensor: int, count: int) -> int:
        """Return a new tensor with the form of another subgraph's and a further first axis of `count`, without data."""
        own = copy(subgraph.tensors[tensor])
        own.shape, own.shapeSignature, own.buffer = [count, *integers(own.shape)], None, 0
        self._subgraph.tensors.append(own)
        return len(self._subgraph.tensors) - 1

    def rows(self, name: str, positions: int, subgraph: Any, tensor: int) -> list[int]:
        """Add an input, and return a tensor of its rows for each row of positions, with the form of another subgraph's.

        The input has as many rows as there are positions; rows at no position may have any values.

        Args:
            name: The input's name.
            positions: A tensor `[count, rows]` int32.
            subgraph: The other subgraph.
            tensor: Its tensor, `[rows, ...]`.
        """
        own, chosen = copy(subgraph.tensors[tensor]), self._subgraph.tensors[positions]
        own.shape, own.shapeSignature, own.buffer = [prod(chosen.shape), *integers(own.shape)[1:]], None, 0
        self._subgraph.tensors.append(own)
        source = self._inputs[name] = len(self._subgraph.tensors) - 1
        count, rows = chosen.shape
        vectors = [self._tensor("positions", [rows], "int32") for _ in range(count)]
        results = [self.copied(subgraph, tensor) for _ in range(count)]
        for vector, result in zip(self._unpack(positions, vectors), results, strict=True):
            self._op(OPS.GATHER, [source, vector], [result], schema.GatherOptionsT())
        return results

    def pieces(self, stack: int, subgraph: Any, tensor: int, count: int) -> list[int]:
        """Cut a tensor along its first axis into `count` tensors with the form of another subgraph's; return them."""
        return self._unpack(stack, [self.copied(subgraph, tensor) for _ in range(count)])

    def _unpack(self, stack: int, pieces: list[int]) -> list[int]:
        options = schema.UnpackOptionsT()
        options.num, options.axis = len(pieces), 0
        self._op(OPS.UNPACK, [stack], pieces, options)
        return pieces

    def stacked(self, tensors: Sequence[int]) -> int:
        """Stack tensors of one form along a new first axis, and return the result."""
        stack = self.stacked_form(self._subgraph, tensors[0], len(tensors))
        options = schema.PackOptionsT()
        options.valuesCount, options.axis = len(tensors), 0
        self._op(OPS.PACK, list(tensors), [stack], options)
        return stack

    def inline(self, subgraph: Any, given: Mapping[int, int], wanted: Collection[int]) -> dict[int, int]:
        """Add the ops with which another subgraph of this file computes some of its tensors.

        Args:
            subgraph: The other subgraph.
            given: By tensors of the other subgraph, those that replace them here.
            wanted: The tensors to compute.

        Returns:
            The new tensors, by tensors of the other subgraph.
        """
        places, needed, operators = dict(given), set(wanted), []
        for operator in reversed(subgraph.operators):
            if needed & {*integers(operator.outputs)}:
                needed.update(integers(operator.inputs))
                operators.append(operator)
        for operator in reversed(operators):
            self.repeat(operator, subgraph, places)
        return places | {i: self.copied(subgraph, i) for i in wanted if i not in places}

    def repeat(self, operator: Any, subgraph: Any, places: dict[int, int]) -> None:
        """Add a copy of an op of another subgraph of this file.

        Args:
            operator: The op.
            subgraph: The other subgraph.
            places: By tensors of the other subgraph, those that replace them here; new ones are added.
        """
        moved = copy(operator)
        for side in ("inputs", "outputs"):
            indices = integers(getattr(operator, side))
            places.update({i: self.copied(subgraph, i) for i in indices if i >= 0 and i not in places})
            setattr(moved, side, [places.get(i, -1) for i in indices])
        self._subgraph.operators.append(moved)

    def place(self, places: dict[int, int], subgraph: Any, tensor: int) -> int:
        """Return the tensor that replaces one of another subgraph; add it for a constant that no op has used yet."""
        if tensor not in places:
            places[tensor] = self.copied(subgraph, tensor)
        return places[tensor]

    def output(self, name: str, tensor: int) -> None:
        """Name an output."""
        self._outputs[name] = tensor

    def done(self) -> None:
        """Return the constant `done`; LiteRT cannot run a signature without outputs."""
        self.output("done", self.constant("done", np.array([1], np.int32)))

    def sign(self, signature: str | None) -> None:
        """Declare inputs and outputs, as a signature if it has a name."""
        self._subgraph.inputs, self._subgraph.outputs = list(self._inputs.values()), list(self._outputs.values())
        if signature is not None:
            add_signature(self._model, signature, self.index, self._inputs, self._outputs)

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> int:
        """Return a new constant."""
        return self._tensor(name, value.shape, value.dtype.name, add_buffer(self._model, value))

    def _handle(self, handle: Handle) -> int:
        tensor = self._tensor(f"{handle.name}/handle", (), "resource")
        options = schema.VarHandleOptionsT()
        options.container, options.sharedName = handle.container, handle.name
        self._op(OPS.VAR_HANDLE, [], [tensor], options)
        return tensor

    def copied(self, subgraph: Any, tensor: int) -> int:
        """Return a new tensor with the form and the data of another subgraph's tensor."""
        self._subgraph.tensors.append(subgraph.tensors[tensor])
        return len(self._subgraph.tensors) - 1

    def _tensor(self, name: str, shape: Sequence[int], dtype: str, buffer: int = 0) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, list(shape), buffer
        tensor.type, tensor.hasRank = getattr(TYPES, dtype.upper()), True
        self._subgraph.tensors.append(tensor)
        return len(self._subgraph.tensors) - 1

    def _op(self, kind: int, inputs: Sequence[int], outputs: Sequence[int], options: Any) -> None:
        self._subgraph.operators.append(made(self._model, kind, inputs, outputs, options))


def add_signature(model: Any, name: str, subgraph: int, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
    """Add a signature, or replace the one of this name."""
    added = schema.SignatureDefT()
    added.signatureKey, added.subgraphIndex = name, subgraph
    added.inputs, added.outputs = _named(inputs), _named(outputs)
    kept = [s for s in model.signatureDefs or [] if s.signatureKey not in (name, name.encode())]
    model.signatureDefs = [*kept, added]


def add_view(model: Any, name: str, index: int, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
    """Add a signature of a subgraph, or of a copy of it with exactly these inputs and outputs.

    LiteRT's CompiledModel loads a file only if each signature lists all inputs and outputs of its subgraph.
    """
    subgraph = model.subgraphs[index]
    declared = sorted(integers(subgraph.inputs)), sorted(integers(subgraph.outputs))
    if declared != (sorted(inputs.values()), sorted(outputs.values())):
        subgraph, index = copy(subgraph), len(model.subgraphs)
        subgraph.name, subgraph.inputs, subgraph.outputs = name, list(inputs.values()), list(outputs.values())
        model.subgraphs.append(subgraph)
    add_signature(model, name, index, inputs, outputs)


def add_copy(model: Any, index: int, name: str) -> int:
    """Add a copy of a subgraph without inputs, outputs and initializers, to run as an initializer; return its index."""
    added = copy(model.subgraphs[index])
    once = {i for i, code in enumerate(model.operatorCodes) if code.builtinCode == OPS.CALL_ONCE}
    added.name, added.inputs, added.outputs = name, [], []
    added.operators = [op for op in added.operators if op.opcodeIndex not in once]
    model.subgraphs.append(added)
    return len(model.subgraphs) - 1


def add_chain(model: Any, first: int, second: int, link: tuple[int, int], name: str) -> tuple[int, int]:
    """Add a subgraph that runs two others one after the other.

    Args:
        model: The file.
        first: The index of the subgraph that runs first.
        second: The index of the subgraph that takes an output of the first.
        link: The tensors of the first one's output and of the second one's input that it becomes.
        name: The new subgraph's name.

    Returns:
        The new subgraph's index, and the offset of the second's tensor indices. The linked input is left out.
    """
    before, after = model.subgraphs[first], model.subgraphs[second]
    shift = len(before.tensors)
    added = schema.SubGraphT()
    added.name = name
    added.tensors = [*before.tensors, *after.tensors]
    added.inputs = [*integers(before.inputs), *(i + shift for i in integers(after.inputs) if i != link[1])]
    added.outputs = [i + shift for i in integers(after.outputs)]
    added.operators = list(before.operators)
    for operator in after.operators:
        moved = copy(operator)
        inputs = integers(operator.inputs)
        moved.inputs = [i if i < 0 else link[0] if i == link[1] else i + shift for i in inputs]
        moved.outputs = [i + shift for i in integers(operator.outputs)]
        added.operators.append(moved)
    model.subgraphs.append(added)
    return len(model.subgraphs) - 1, shift


def _named(tensors: Mapping[str, int]) -> list[Any]:
    entries = []
    for name, index in tensors.items():
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = name, index
        entries.append(entry)
    return entries


CAST = ("bool", "int8", "int16", "int64", "uint16", "uint32")
"""Types of variables that signatures take and return as int32."""

GATHERED = ("bool", "float32", "int8", "int16", "int32", "int64", "uint8")
"""Types of scalars that LiteRT's GATHER supports."""


def add_pair(
    model: Any, names: tuple[str, str], prefix: str, variables: Sequence[Variable], initializers: Iterable[int]
) -> tuple[str, str]:
    """Add a signature that returns variables and one that sets them, and return their names.

    As in exports, signatures take and return integers and booleans as int32, which every LiteRT runtime can pass.

    Both run the file's initializers first; otherwise, LiteRT would run them later and reset the variables.
    """
    reader, writer = (NewSubgraph(model, name) for name in names)
    for i, variable in enumerate(variables):
        if i == 0:
            reader.call_once(initializers)
            writer.call_once(initializers)
        reader.output(f"{prefix}{i}", _returned(reader, variable))
        writer.assign(variable, _given(writer, f"{prefix}{i}", variable))
    writer.done()
    for subgraph, name in zip((reader, writer), names, strict=True):
        subgraph.sign(name)
    return names


def _returned(reader: NewSubgraph, variable: Variable) -> int:
    """Return a variable's value in the type of the output."""
    value, dtype = reader.read(variable), _dtype(variable)
    if variable.shape == () and dtype in GATHERED:  # READ_VARIABLE resizes it; CompiledModel would return other memory
        value = reader.gathered(value, dtype)
    return value if _passed(variable) == dtype else reader.cast(value, _passed(variable))


def _given(writer: NewSubgraph, name: str, variable: Variable) -> int:
    """Return a new input, cast to the type of a variable."""
    value = writer.input(name, variable.shape or (), _passed(variable))
    return value if _passed(variable) == _dtype(variable) else writer.cast(value, _dtype(variable))


def _passed(variable: Variable) -> str:
    """Return the type in which signatures pass a variable: its own if int32 cannot represent its initial value."""
    dtype = _dtype(variable)
    if dtype not in CAST:
        return dtype
    initial = np.zeros((), dtype) if variable.initial is None else variable.initial.value()
    return "int32" if np.array_equal(initial, initial.astype(np.int32)) else dtype


def _dtype(variable: Variable) -> str:
    return variable.dtype or "float32"
