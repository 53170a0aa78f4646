"""The first op at which a file and its model part, for the error of a failed check.

The signature is emitted and converted once more, with each emitted op in a scope of its own, so that the file's tensors have
names that lead back to the traced ops. LiteRT then runs it with all intermediate tensors kept, and TensorFlow the trace.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import OpResolverType

from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.signatures import Program, emit_signatures
from odt_sim.export.lowering import Trace
from odt_sim.export.self_check.file_side import FileSide, value_of, without_padding
from odt_sim.export.self_check.function_side import run_trace
from odt_sim.export.self_check.side import Array, Part, Reference, before_last
from odt_sim.export.trace.inlining import inlined
from odt_sim.model.reading.graph_reader import read_graph

READS = ("ReadVariableOp", "Identity")

PARTED = 1e-3
"""The relative difference from which a value counts as another one."""


def first_parting(program: Program, reference: Reference, parts: Sequence[Part]) -> str | None:
    """Return where the last of some parts first parts from TensorFlow's run of the same trace; None if nowhere.

    An op that the converter has merged with others, or lost, has no value of its own: the text then names the last equal op,
    too.

    Args:
        program: The traced functions of the file.
        reference: The model, whose variables the traces read.
        parts: The calls up to the one whose results differ.
    """
    part = parts[-1]
    trace = inlined(program.traces[part.signature])
    traces = {key: program.traces[key] for key in dict.fromkeys(part.signature for part in parts)}
    computed = _values_of_file(replace(program, traces=traces), parts, trace)
    before_last(reference, parts)
    inputs = {spec.name: value_of(part, spec.name) for spec in trace.arguments.values()}
    expected = _values_of_trace(program, trace, inputs, part, set(computed))
    equal = set[str]()
    for op, name in _tensors(trace, expected):
        if _parts(without_padding(computed[name], part), without_padding(expected[name], part)):
            before = _nearest(op, equal)
            return f"{f'between {_described(trace, before)}, and' if before else 'at'} {_described(trace, op)}"
        equal.add(op.name)
    return None


def _tensors(trace: Trace, values: Collection[str]) -> list[tuple[tf.Operation, str]]:
    """Return the names of the tensors with values, in order, with their ops."""
    operations = [op for op in trace.concrete.graph.get_operations() if op.type not in READS]
    return [(op, t.name) for op in operations for t in op.outputs if t.name in values]


def _nearest(op: tf.Operation, equal: Collection[str]) -> tf.Operation | None:
    """Return the nearest equal op before an op, past ops without values; None if it is an input of the op, or if none is."""
    level, depth = [t.op for t in op.inputs], 0
    while level:
        found = next((before for before in level if before.name in equal and before.type not in READS), None)
        if found is not None:
            return found if depth else None
        level, depth = [t.op for before in level for t in before.inputs], depth + 1
    return None


def first_counting_padding(program: Program, reference: Reference, parts: Sequence[Part]) -> str | None:
    """Return where the rows that pad the last of some parts first change a value of other rows; None if nowhere."""
    part = parts[-1]
    trace = inlined(program.traces[part.signature])
    padded = {spec.name: value_of(part, spec.name) for spec in trace.arguments.values()}
    content = {*part.inputs} - {"sample_weight"}
    other = {name: _repadded(value, part) if name in content else value for name, value in padded.items()}
    runs = []
    for inputs in (padded, other):
        before_last(reference, parts)
        runs.append(_values_of_trace(program, trace, inputs, part, None))
    for op, name in _tensors(trace, runs[0]):
        one, two = (values[name] for values in runs)
        if part.padded_to in one.shape[:1]:
            one, two = one[: part.rows], two[: part.rows]
        elif any(size % (part.padded_to or 1) == 0 for size in one.shape):
            continue  # may have rows of the padding on another axis
        if _parts(one, two):
            return f"at {_described(trace, op)}"
    return None


def _described(trace: Trace, op: tf.Operation) -> str:
    return f"{trace.where(op)}, op {op.type}"


def _values_of_file(program: Program, parts: Sequence[Part], trace: Trace) -> dict[str, Array]:
    """Return the values in the last part that the file computes for traced tensors, by the names of these tensors."""
    origins: dict[str, str] = {}
    content = convert(emit_signatures(program, origins))
    file = FileSide(
        content,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    for part in parts:
        file.run(part)
    graph = read_graph(content, "the file")
    entry = graph.signatures[parts[-1].signature]
    index, values = entry.subgraph, {}
    named = {i: _source(trace.concrete.structured_outputs[name]).name for name, i in entry.outputs.items()}
    for i, tensor in enumerate(graph.subgraphs[index].tensors):
        name = named.get(i) or origins.get(tensor.name.partition(";")[0])  # merged ops are listed from the last one on
        if name is not None and tensor.dtype == "float32" and not tensor.constant:
            values[name] = file.interpreter.get_tensor(i, index)
    return values


def _source(tensor: tf.Tensor) -> tf.Tensor:
    """Return the tensor that a tensor is a copy of."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _values_of_trace(
    program: Program, trace: Trace, inputs: Mapping[str, Array], part: Part, wanted: set[str] | None
) -> dict[str, Array]:
    """Return the values of traced tensors in TensorFlow, by name; all float32 ones for `wanted=None`."""
    for name, variable in program.inputs.items():
        variable.assign(part.further.get(name, variable))
    chosen = {
        t.name: t
        for op in trace.concrete.graph.get_operations()
        for t in op.outputs
        if t.dtype == tf.float32 and (wanted is None or t.name in wanted)
    }
    return run_trace(trace, inputs, chosen)


def _repadded(values: Array, part: Part) -> Array:
    """Return a padded input whose padding repeats the last real row instead of the first."""
    return np.concatenate(
        [values[: part.rows], np.repeat(values[part.rows - 1 : part.rows], len(values) - part.rows, 0)]
    )


def _parts(one: Array, two: Array) -> bool:
    """Return whether two values differ; in another shape, such as with its axes in another order, by their sorted numbers."""
    if one.size != two.size:
        return False
    flat, expected = (np.ravel(values).astype(np.float64) for values in (one, two))
    if one.shape != two.shape:
        flat, expected = np.sort(flat), np.sort(expected)
    return not np.linalg.norm(flat - expected) <= PARTED * np.linalg.norm(expected) + 1e-30
