"""The head of a model in a separate small file, built in memory, for devices that train the head on embeddings.

A device that trains or evaluates only the head writes and reads only the head's weights and slots. Several steps run in
one call, even where the whole file is too large for that. The ops are those of the model's own file, so results are
bit-for-bit the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.editing import OPS, packed
from odt_sim.model.engine_file import EngineFile
from odt_sim.model.graph import CONTROL, Handle
from odt_sim.model.graph_reader import damaged
from odt_sim.model.repeated import add_repeated, is_small, steps_of_calls
from odt_sim.model.surgery import NewSubgraph, empty
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout

TRAIN = "head_train"
HEAD = (TRAIN, "head_infer")
READERS = {"parameters": "a", "optimizer_state": "s"}
WRITERS = {"restore": "a", "restore_optimizer_state": "s", "set_gradient_offset": "b"}
"""The signatures that return or set variables, with the prefix of the variables' numbers."""


@lru_cache(4)
def head_file(model: TrainableModel, usual: int | None = None) -> EngineFile | None:
    """Return the file of a model's head, with `head_train` and `head_infer`.

    Args:
        model: The model.
        usual: The number of steps of a usual training, see `odt_sim.model.repeated.steps_of_calls`.

    Returns:
        None if the model has no such signatures, or they use control flow or variables that no signature sets.

    Raises:
        ModelError: The file is damaged.
    """
    if not model.embeds or any(model.operators[name].keys() & CONTROL for name in HEAD):
        return None
    try:
        return _head_file(model, steps_of_calls(usual))
    except Exception as error:  # parts that the declarations do not show may be damaged, and cause any exception
        raise damaged(model.where, error) from error


def _head_file(model: TrainableModel, counts: tuple[int, ...]) -> EngineFile | None:
    source = _Source(model.content)
    used = {handle for name in HEAD for handle in source.functions[name].handles.values()}
    written = {name: _of_head(source, name, prefix, used) for name, prefix in WRITERS.items()}
    read = {name: _of_head(source, name, prefix, used) for name, prefix in READERS.items()}
    parameters, slots, offset = written.values()
    layout = Layout(tuple(model.layout.parameters[i] for i in parameters))
    trainable = model.trainable_layout.parameters
    complete = {p.name for p in trainable if p.group == "head"} <= {*layout.names}
    known = {*parameters.values(), *slots.values(), *offset.values()} == used
    if not (complete and known and [*read.values()] == [parameters, slots]):
        return None
    for name in HEAD:
        source.copy(name)
    for name, numbers in read.items():
        source.copy_reader(name, READERS[name], numbers)
    for name, numbers in written.items():
        source.copy_writer(name, WRITERS[name], numbers)
    several = {TRAIN: counts} if is_small(model, TRAIN, layout.size) else {}
    for signature in several:
        add_repeated(source.made, signature, counts)
    return EngineFile(packed(source.made), layout, tuple(slots), Layout(tuple(trainable[i] for i in offset)), several)


def _of_head(source: "_Source", signature: str, prefix: str, used: set[Handle]) -> dict[int, Handle]:
    """Return the head's variables among those that a signature returns or sets, by their numbers, in order."""
    if signature not in source.functions:
        return {}
    found = source.functions[signature].variables
    numbered = {int(name.removeprefix(prefix)): handle for name, handle in found.items() if handle in used}
    return dict(sorted(numbered.items()))


class _Source:
    """A file, and a new file that is built from its parts.

    Attributes:
        functions: The signatures that are needed here, by name.
        made: The new file in its object form. It has no initializers, which would set all variables of the model.
    """

    def __init__(self, content: bytes) -> None:
        self._root = root = schema.Model.GetRootAs(content, 0)
        wanted = {name.encode(): name for name in (*HEAD, *READERS, *WRITERS)}
        declared = (root.SignatureDefs(i) for i in range(root.SignatureDefsLength()))
        self.functions = {
            wanted[each.SignatureKey()]: _Function(root, schema.SignatureDefT.InitFromObj(each))
            for each in declared
            if each.SignatureKey() in wanted
        }
        self.made, self._buffers = empty(), {0: 0}
        codes = (root.OperatorCodes(i) for i in range(root.OperatorCodesLength()))
        self.made.operatorCodes = [schema.OperatorCodeT.InitFromObj(code) for code in codes]
        self.made.signatureDefs = []

    def copy(self, name: str) -> None:
        """Copy a signature without its initializers."""
        function = self._with_constants(name)
        subgraph, declared = function.subgraph, function.declared
        once = {id(operator) for operator in function.ops(OPS.CALL_ONCE)}
        subgraph.operators = [operator for operator in subgraph.operators if id(operator) not in once]
        declared.subgraphIndex = len(self.made.subgraphs)
        self.made.subgraphs.append(subgraph)
        self.made.signatureDefs.append(declared)

    def copy_reader(self, name: str, prefix: str, numbers: Iterable[int]) -> None:
        """Add a signature that returns the variables with these numbers, renumbered; without numbers, add none."""
        if not numbers:
            return
        function, reader = self._with_constants(name), NewSubgraph(self.made, name)
        wanted = [function.outputs[f"{prefix}{number}"] for number in numbers]
        places = reader.inline(function.subgraph, {}, wanted)
        for i, tensor in enumerate(wanted):
            reader.output(f"{prefix}{i}", places[tensor])
        reader.sign(name)

    def copy_writer(self, name: str, prefix: str, numbers: Mapping[int, Handle]) -> None:
        """Add a signature that sets the variables with these numbers, renumbered; without numbers, add none."""
        if not numbers:
            return
        function, writer = self._with_constants(name), NewSubgraph(self.made, name)
        given = {function.inputs[f"{prefix}{number}"]: i for i, number in enumerate(numbers)}
        places = {tensor: writer.input_like(f"{prefix}{i}", function.subgraph, tensor) for tensor, i in given.items()}
        pairs = [tuple(map(int, op.inputs)) for op in function.ops(OPS.ASSIGN_VARIABLE)]
        kept = [(handle, value) for handle, value in pairs if function.handles[handle] in numbers.values()]
        places = writer.inline(function.subgraph, places, {tensor for pair in kept for tensor in pair})
        for handle, value in kept:
            writer.set(places[handle], places[value])
        writer.done()
        writer.sign(name)

    def _with_constants(self, name: str) -> "_Function":
        """Copy the constants of a signature to the new file, and return the signature."""
        function = self.functions[name]
        for tensor in function.subgraph.tensors:
            if tensor.buffer not in self._buffers:
                self._buffers[tensor.buffer] = len(self.made.buffers)
                self.made.buffers.append(schema.BufferT.InitFromObj(self._root.Buffers(tensor.buffer)))
            tensor.buffer = self._buffers[tensor.buffer]
        return function


@dataclass(frozen=True, eq=False)
class _Function:
    """A signature of a file.

    Attributes:
        root: The file.
        declared: The signature in its object form.
    """

    root: Any
    declared: Any

    @cached_property
    def subgraph(self) -> Any:
        """Its subgraph in its object form."""
        return schema.SubGraphT.InitFromObj(self.root.Subgraphs(self.declared.subgraphIndex))

    @property
    def inputs(self) -> dict[str, int]:
        """The inputs' tensors by name."""
        return {entry.name.decode(): entry.tensorIndex for entry in self.declared.inputs or ()}

    @property
    def outputs(self) -> dict[str, int]:
        """The outputs' tensors by name."""
        return {entry.name.decode(): entry.tensorIndex for entry in self.declared.outputs or ()}

    @cached_property
    def handles(self) -> dict[int, Handle]:
        """The variables by the tensors of their handles."""
        made = {int(operator.outputs[0]): operator.builtinOptions for operator in self.ops(OPS.VAR_HANDLE)}
        return {tensor: Handle(_text(own.container), _text(own.sharedName)) for tensor, own in made.items()}

    @property
    def variables(self) -> dict[str, Handle]:
        """The variables by the inputs that set them, or by the outputs that return them if it sets none."""
        pairs = [tuple(map(int, operator.inputs)) for operator in self.ops(OPS.ASSIGN_VARIABLE)]
        if not pairs:
            sources = {name: self._sources(tensor) & self.handles.keys() for name, tensor in self.outputs.items()}
            return {name: self.handles[tensor] for name, (tensor,) in sources.items()}
        names = {tensor: name for name, tensor in self.inputs.items()}
        set_by = {handle: self._sources(value) & names.keys() for handle, value in pairs}
        return {names[tensor]: self.handles[handle] for handle, (tensor,) in set_by.items()}

    def ops(self, kind: int) -> Iterator[Any]:
        """Return its ops of a kind."""
        codes = (self.root.OperatorCodes(operator.opcodeIndex) for operator in self.subgraph.operators)
        kinds = (max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) for code in codes)
        return (operator for operator, own in zip(self.subgraph.operators, kinds, strict=True) if own == kind)

    def _sources(self, tensor: int) -> set[int]:
        """Return the tensors that a tensor is computed from, itself included."""
        found, left = set[int](), [tensor]
        while left:
            found.add(left[-1])
            operator = self._makers.get(left.pop())
            left += [] if operator is None or operator.inputs is None else map(int, operator.inputs)
        return found

    @cached_property
    def _makers(self) -> dict[int, Any]:
        """The op that computes each tensor."""
        return {
            int(tensor): operator
            for operator in self.subgraph.operators
            if operator.outputs is not None
            for tensor in operator.outputs
        }


def _text(name: bytes | None) -> str:
    return (name or b"").decode()
