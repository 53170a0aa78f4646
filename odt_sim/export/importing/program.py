"""The signatures of a `.tflite` file as traced TensorFlow functions, with variables that have the file's initial values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from odt_sim.errors import ExportError, ModelError
from odt_sim.export.importing.control_flow import States, random_states
from odt_sim.export.importing.registry import IMPORTS, Operator, Value, emitted
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.creation import FOLDED
from odt_sim.export.lowering.registry import Refusal
from odt_sim.export.trace.tracing import named
from odt_sim.model.reading.graph import Graph, Handle, Op, Subgraph, Tensor

DEEPEST = 20
"""The maximum depth of calls between subgraphs, because a damaged file may contain a cycle."""


@dataclass
class Program:
    """A file's graph in TensorFlow.

    Attributes:
        graph: The file's graph.
        variables: The variables; those without an initial value are zero.
        random_states: The states of the random ops.
    """

    graph: Graph
    variables: dict[Handle, tf.Variable]
    random_states: States
    _depth: int = field(default=0, init=False)

    @classmethod
    def of(cls, graph: Graph) -> "Program":
        """Create a file's variables and run its initializers.

        Raises:
            ExportError: A variable has no fixed shape, or an initializer contains an op that cannot be imported.
        """
        known = {handle: own for handle, own in graph.variables.items() if own.dtype is not None}
        program = cls(graph, {handle: _variable(own) for handle, own in known.items()}, random_states(graph))
        for index in graph.initializers:
            program._traced(index, [], [], {}, "an initializer").concrete()
        return program

    def trace(self, signature: str) -> Trace:
        """Import a signature.

        Raises:
            ExportError: The signature contains an op that cannot be imported.
        """
        entry = self.graph.signatures[signature]
        tensors = self.graph.subgraph(signature).tensors
        try:
            specs = [
                tf.TensorSpec(
                    [None if size < 0 else size for size in tensors[i].shape_signature], _dtype(tensors[i]), name
                )
                for name, i in entry.inputs.items()
            ]
        except Refusal as refusal:
            raise ExportError(f"signature {signature!r} {refusal}") from refusal
        where = f"signature {signature!r}"
        return self._traced(entry.subgraph, list(entry.inputs.values()), specs, entry.outputs, where)

    def variable(self, output: int, subgraph: int) -> tf.Variable:
        """Return the variable whose handle is a tensor `output` of a subgraph."""
        handle = self.graph.handles[subgraph][output]
        if handle not in self.variables:
            raise Refusal(f"takes the variable {handle.name!r}, which no op reads or sets")
        return self.variables[handle]

    def run(self, index: int, inputs: Sequence[Value]) -> list[Value]:
        """Import the ops of a subgraph into the current graph and return its outputs."""
        subgraph = self.graph.subgraphs[index]
        values = dict(zip(subgraph.inputs, inputs, strict=True))
        self._run(index, values)
        return [_value(subgraph, number, values) for number in subgraph.outputs]

    def _traced(
        self, index: int, arguments: list[int], specs: list[tf.TensorSpec], outputs: Mapping[str, int], where: str
    ) -> Trace:
        subgraph = self.graph.subgraphs[index]

        def function(**given: tf.Tensor) -> dict[str, tf.Tensor]:
            values = {number: given[spec.name] for number, spec in zip(arguments, specs, strict=True)}
            self._run(index, values)
            return {name: tf.identity(_value(subgraph, number, values)) for name, number in outputs.items()}

        try:
            return Trace(named(function, specs), layers_of(handle.name for handle in self.variables))
        except Refusal as refusal:
            raise ExportError(f"{where}: {refusal}") from refusal
        except (ValueError, TypeError, AttributeError, LookupError, ModelError, tf.errors.OpError) as error:
            line = " ".join(str(error).split())[:300]
            raise ExportError(f"{where}: TensorFlow rejects its graph ({line})") from error

    def _run(self, index: int, values: dict[int, Value]) -> None:
        if self._depth > DEEPEST:
            raise Refusal("its subgraphs call one another endlessly")
        self._depth += 1
        try:
            for op in self.graph.subgraphs[index].ops:
                values.update(zip(op.outputs, self._outputs(index, op, values), strict=True))
        finally:
            self._depth -= 1

    def _outputs(self, index: int, op: Op, values: dict[int, Value]) -> list[Value]:
        subgraph = self.graph.subgraphs[index]
        try:
            with tf.name_scope(_scope(subgraph, op)):
                operator = Operator(
                    kind=op.kind,
                    options=SimpleNamespace(**op.options),
                    node=op.node_def,
                    inputs=[_value(subgraph, number, values) for number in op.inputs],
                    dtypes=[_dtype(subgraph.tensors[number]) for number in op.outputs],
                    variables={
                        number: self.variable(number, index) for number in op.outputs if self._is_handle(number, index)
                    },
                    state=self.random_states.get((index, op.outputs[0])) if op.outputs else None,
                    run=self.run,
                )
                return _imported(operator)
        except Refusal as refusal:
            message = str(refusal)
            raise (refusal if message.startswith("the op ") else Refusal(f"the op {op.kind} {message}")) from refusal

    def _is_handle(self, number: int, index: int) -> bool:
        return number in self.graph.handles[index]


def is_statistic(name: str) -> bool:
    """Return whether a variable's name is that of a moving mean or variance, which changes without a gradient."""
    return name.rpartition("/")[2] in ("moving_mean", "moving_variance")


def layers_of(names: Iterable[str]) -> set[str]:
    """Return the names of layers that occur in the names of variables."""
    return {part for name in names for part in name.split("/")[:-1]}


def _variable(own: Any) -> tf.Variable:
    if own.shape is None or min(own.shape, default=0) < 0:
        raise ExportError(f"the variable {own.name!r} has no fixed shape, which is not supported")
    value = own.initial.value() if own.initial is not None else tf.zeros(own.shape, own.dtype)
    return tf.Variable(value, trainable=not is_statistic(own.name), name=_name(own.name) or None)


def _value(subgraph: Subgraph, number: int, values: Mapping[int, Value]) -> Value:
    """Return a tensor of a subgraph: a computed tensor, a constant, or None for an omitted input."""
    if number < 0:
        return None
    if number in values:
        return values[number]
    tensor = subgraph.tensors[number]
    if tensor.quantized and tensor.constant:
        raise Refusal("takes a quantized constant; use the model from before quantization")
    if tensor.constant and tensor.dtype != "string":
        return tf.constant(tensor.value(), _dtype(tensor))
    if 0 in tensor.shape:
        return tf.zeros(tensor.shape, _dtype(tensor))
    raise Refusal(f"takes a {tensor.dtype} tensor that nothing computes" if not tensor.constant else "takes text")


def _imported(operator: Operator) -> list[Value]:
    if operator.kind in IMPORTS:
        return _computed(operator) or IMPORTS[operator.kind](operator)
    if operator.node:
        return emitted(operator.node, operator.inputs)
    raise Refusal("has no TensorFlow equivalent that odt_sim supports")


PARTS = ("STRIDED_SLICE", "SLICE", "GATHER")
"""Ops that may select fixed sizes from a partly open shape."""


def _computed(operator: Operator) -> list[Value] | None:
    """Return the outputs of a constant integer op as constants, so that loops over them can be unrolled; else None."""
    if not operator.inputs or not all(dtype in FOLDED for dtype in operator.dtypes):
        return None
    values = [_known(value, part=operator.kind in PARTS) for value in operator.inputs]
    if any(value is None for value in values):
        return None
    with tf.init_scope():
        eager = [tf.constant(value, t.dtype) for value, t in zip(values, operator.inputs, strict=True)]
        outputs = [value.numpy() for value in IMPORTS[operator.kind](replace(operator, inputs=eager))]
    if operator.inputs[0].op.type == "Shape" and any((value < 0).any() for value in outputs):
        return None
    return [tf.constant(value, dtype) for value, dtype in zip(outputs, operator.dtypes, strict=True)]


def _known(value: Value, *, part: bool) -> Any:
    """Return the value of a constant, or None; for a `part` op, also the value of a shape, with -1 for open sizes."""
    if not isinstance(value, tf.Tensor):
        return None
    if part and value.op.type == "Shape" and value.op.inputs[0].shape.rank is not None:
        return [-1 if size is None else size for size in value.op.inputs[0].shape]
    return tf.get_static_value(value)


def _dtype(tensor: Tensor) -> tf.DType:
    try:
        return tf.as_dtype(tensor.dtype)
    except TypeError as error:
        raise Refusal(f"has a tensor of type {tensor.dtype}, which is not supported") from error


def _scope(subgraph: Subgraph, op: Op) -> str:
    """Return the name of an op in the graph, derived from the tensor that it computes."""
    name = subgraph.tensors[op.outputs[0]].name if op.outputs else ""
    return _name(name.partition(";")[0]) or op.kind


def _name(text: str) -> str:
    """Return a string as a valid TensorFlow name."""
    return re.sub(r"[^A-Za-z0-9_.\\/>-]", "_", text.partition(":")[0]).strip("_/.->\\")
