"""The head of a model in a separate small file, built in memory, for devices that train the head on embeddings.

A device that trains or evaluates only the head writes and reads only the head's weights and slots. Several steps run in
one call, even where the whole file is too large for that. The ops are those of the model's own file, so results are
bit-for-bit the same.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.editing.repeated import STEPS, EngineFile, add_repeated, is_small
from odt_sim.model.editing.surgery import NewSubgraph, add_signature, empty
from odt_sim.model.editing.tree import packed
from odt_sim.model.reading.dataflow import flow_of
from odt_sim.model.reading.graph import CONTROL, Graph, Handle
from odt_sim.model.reading.graph_reader import damaged, read_graph
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout

TRAIN = "head_train"
HEAD = (TRAIN, "head_infer")
READERS = {"parameters": "a", "optimizer_state": "s"}
WRITERS = {"restore": "a", "restore_optimizer_state": "s", "set_gradient_offset": "b"}
"""The signatures that return or set variables, with the prefix of the variables' numbers."""


@lru_cache(4)
def head_file(model: TrainableModel) -> EngineFile | None:
    """Return the file of a model's head, with `head_train` and `head_infer`.

    Returns:
        None if the model has no such signatures, or they use control flow or variables that no signature sets.

    Raises:
        ModelError: The file is damaged.
    """
    if not model.embeds or any(model.operators[name].keys() & CONTROL for name in HEAD):
        return None
    try:
        return _head_file(model)
    except Exception as error:  # parts that the declarations do not show may be damaged, and cause any exception
        raise damaged(model.where, error) from error


def _head_file(model: TrainableModel) -> EngineFile | None:
    graph = read_graph(model.content, model.where)
    used = {handle for name in HEAD for handle in graph.handles[graph.signatures[name].subgraph].values()}
    written = {name: _of_head(graph, name, prefix, used) for name, prefix in WRITERS.items()}
    read = {name: _of_head(graph, name, prefix, used) for name, prefix in READERS.items()}
    parameters, slots, offset = written.values()
    layout = Layout(tuple(model.layout.parameters[i] for i in parameters))
    trainable = model.trainable_layout.parameters
    complete = {p.name for p in trainable if p.group == "head"} <= {*layout.names}
    known = {*parameters.values(), *slots.values(), *offset.values()} == used
    if not (complete and known and [*read.values()] == [parameters, slots]):
        return None
    head = _Head(model.content, graph)
    for name in HEAD:
        head.copy(name)
    for name, numbers in read.items():
        head.add_reader(name, READERS[name], numbers)
    for name, numbers in written.items():
        head.add_writer(name, WRITERS[name], numbers)
    several = {TRAIN: STEPS} if is_small(model, TRAIN, layout.size) else {}
    for signature in several:
        add_repeated(head.file, signature)
    return EngineFile(packed(head.file), layout, tuple(slots), Layout(tuple(trainable[i] for i in offset)), several)


def _of_head(graph: Graph, signature: str, prefix: str, used: set[Handle]) -> dict[int, Handle]:
    """Return the head's variables among those that a signature returns or sets, by their numbers, in order."""
    if signature not in graph.signatures:
        return {}
    flow = flow_of(graph, signature)
    outputs = {name: source for name in flow.entry.outputs for source in flow.of_output(name)}
    numbered = flow.copied() if flow.assigned else outputs
    own = {int(name.removeprefix(prefix)): handle for name, handle in numbered.items() if handle in used}
    return {number: handle for number, handle in sorted(own.items()) if isinstance(handle, Handle)}


class _Head:
    """A new file that is built from parts of another one.

    Attributes:
        file: The new file in its object form. It has no initializers, which would set all variables of the model.
    """

    def __init__(self, content: bytes, graph: Graph) -> None:
        self._root, self._graph = schema.Model.GetRootAs(content, 0), graph
        self.file, self._buffers = empty(), {0: 0}
        codes = (self._root.OperatorCodes(i) for i in range(self._root.OperatorCodesLength()))
        self.file.operatorCodes = [schema.OperatorCodeT.InitFromObj(code) for code in codes]

    def copy(self, name: str) -> None:
        """Copy a signature without its initializers."""
        entry, subgraph = self._graph.signatures[name], self._subgraph(name)
        pairs = zip(subgraph.operators, self._graph.subgraph(name).ops, strict=True)
        subgraph.operators = [operator for operator, op in pairs if op.kind != "CALL_ONCE"]
        self.file.subgraphs.append(subgraph)
        add_signature(self.file, name, len(self.file.subgraphs) - 1, entry.inputs, entry.outputs)

    def add_reader(self, name: str, prefix: str, numbers: Mapping[int, Handle]) -> None:
        """Add a signature that returns the variables with these numbers, renumbered; without numbers, add none."""
        if not numbers:
            return
        reader = NewSubgraph(self.file, name)
        wanted = [self._graph.signatures[name].outputs[f"{prefix}{number}"] for number in numbers]
        places = reader.inline(self._subgraph(name), {}, wanted)
        for i, tensor in enumerate(wanted):
            reader.output(f"{prefix}{i}", places[tensor])
        reader.sign(name)

    def add_writer(self, name: str, prefix: str, numbers: Mapping[int, Handle]) -> None:
        """Add a signature that sets the variables with these numbers, renumbered; without numbers, add none."""
        if not numbers:
            return
        entry, subgraph, writer = self._graph.signatures[name], self._subgraph(name), NewSubgraph(self.file, name)
        given = {entry.inputs[f"{prefix}{number}"]: i for i, number in enumerate(numbers)}
        places = {tensor: writer.input_like(f"{prefix}{i}", subgraph, tensor) for tensor, i in given.items()}
        accesses = self._graph.accesses[entry.subgraph]
        kept = [each.op.inputs[:2] for each in accesses if each.assigns and each.handle in numbers.values()]
        places = writer.inline(subgraph, places, {tensor for pair in kept for tensor in pair})
        for handle, value in kept:
            writer.set(places[handle], places[value])
        writer.done()
        writer.sign(name)

    def _subgraph(self, name: str) -> Any:
        """Return a signature's subgraph in its object form, whose constants are copied to the new file."""
        subgraph = schema.SubGraphT.InitFromObj(self._root.Subgraphs(self._graph.signatures[name].subgraph))
        for tensor in subgraph.tensors:
            if tensor.buffer not in self._buffers:
                self._buffers[tensor.buffer] = len(self.file.buffers)
                self.file.buffers.append(schema.BufferT.InitFromObj(self._root.Buffers(tensor.buffer)))
            tensor.buffer = self._buffers[tensor.buffer]
        return subgraph
