"""Rewrite a `.tflite` file with Flex ops so that it trains on any LiteRT interpreter.

A Flex op contains its TensorFlow op. So the file's graph can be imported into TensorFlow, lowered as in an export, and
converted with built-in ops only.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import tensorflow as tf

from odt_sim._support.files import write_file
from odt_sim.errors import ExportError, ModelError
from odt_sim.export.emit.signatures import Program as Traced
from odt_sim.export.emit.signatures import handle, numbered, reader
from odt_sim.export.importing import Program
from odt_sim.export.keras.parameters import unique
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.trace import Accesses
from odt_sim.export.trace.inlining import inlined
from odt_sim.export.trace.saved_model import emitted_file
from odt_sim.export.trace.user_parameters import is_generator, parameters_of, variable_of
from odt_sim.model.contract.manifest import DEFAULT_BATCH_SIZE, METADATA_NAME, Manifest, Parameter
from odt_sim.model.contract.signatures import check_signatures
from odt_sim.model.editing.metadata import with_metadata
from odt_sim.model.foreign.adaptation import adapted
from odt_sim.model.reading.flatbuffer import read
from odt_sim.model.reading.graph import Graph, Handle
from odt_sim.model.reading.graph_reader import read_graph

SAVING = ("FlexSave", "FlexSaveV2", "FlexSaveSlices", "FlexShardedFilename", "FlexMergeV2Checkpoints")
RESTORING = ("FlexRestore", "FlexRestoreV2", "FlexRestoreSlice")
_PASSING = ("FlexEnsureShape", "FlexIdentity", "FlexReshape", "RESHAPE", "CAST")


def is_checkpointing(graph: Graph, signature: str) -> bool:
    """Return whether a signature writes or reads a checkpoint."""
    return any(op.kind in (*SAVING, *RESTORING) for op in graph.ops(signature))


def saved_variables(graph: Graph, signature: str) -> list[Handle]:
    """Return the variables that a signature writes to a checkpoint or sets from one, in the checkpoint's order."""
    index = graph.signatures[signature].subgraph
    accesses = graph.accesses[index]
    read = {access.place: access.handle for access in accesses if not access.assigns}
    assigned = {access.place: access.handle for access in accesses if access.assigns}
    restored: dict[int, None] = {}
    saved: list[Handle] = []
    for op in graph.subgraphs[index].ops:
        if op.kind in SAVING:
            saved += [read[place] for place in op.inputs if place in read]
        elif op.kind in RESTORING or (op.kind in _PASSING and not restored.keys().isdisjoint(op.inputs)):
            restored.update(dict.fromkeys(op.outputs))
    set_from_it = [assigned[place] for place in restored if place in assigned]
    return list(dict.fromkeys([*saved, *set_from_it]))


def deflex(
    source: str | os.PathLike[str], path: str | os.PathLike[str], *, batch_size: int | None = None, check: bool = True
) -> Path:
    """Rewrite a `.tflite` file with Flex ops so that it trains on any LiteRT interpreter, with the same results.

    Signatures that write or read a checkpoint file are replaced by `parameters` and `restore`, which return and take the
    weights as `a0..aN`; the optimizer's slots are those of `optimizer_state` and `restore_optimizer_state`. All other
    signatures keep their names, inputs and outputs.

    Args:
        source: The file with Flex ops.
        path: The file to write.
        batch_size: The number of rows in a batch if the file leaves it open; a fixed number trains faster. None keeps
            it open.
        check: Whether to compare the new file with the original graph in TensorFlow.

    Returns:
        The path of the written file.

    Raises:
        ModelError: The source is not a readable `.tflite` file.
        ExportError: The file has no Flex ops, no signatures, or an op that cannot be rewritten.
        FileError: The file cannot be written.
    """
    try:
        content = Path(source).read_bytes()
    except OSError as error:
        raise ExportError(
            f"{source}: cannot read the file ({error.strerror}); give the path of a .tflite file"
        ) from error
    write_file(Path(path), deflexed(content, str(source), Path(source).stem, batch_size, check=check))
    return Path(path)


def deflexed(content: bytes, where: str, name: str, batch_size: int | None = None, *, check: bool = True) -> bytes:
    """Return a file's content without Flex ops; see `deflex`.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.
        name: The model's name, for the manifest.
        batch_size: The rows of a batch if the file leaves their number open.
        check: See `deflex`.
    """
    graph = read_graph(content, where)
    _check(graph, where)
    try:
        return _rewritten(graph, name, batch_size, check)
    except ExportError as error:
        raise ExportError(f"{where}: {error}") from error


def _check(graph: Graph, where: str) -> None:
    if not any(entry.declared for entry in graph.signatures.values()):
        raise ExportError(f"{where}: has no signatures, so its inputs have no names; convert the model with signatures")
    if not any(graph.flex_ops(key) for key in graph.signatures):
        raise ExportError(
            f"{where}: has no Flex ops, so there is nothing to rewrite; to check whether it trains, run odt-sim doctor"
        )


def _rewritten(graph: Graph, name: str, batch_size: int | None, check: bool) -> bytes:
    started = perf_counter()
    program = Program.of(graph)
    checkpoints = [key for key in graph.signatures if is_checkpointing(graph, key)]
    traces = {key: inlined(program.trace(key), batch_size) for key in graph.signatures if key not in checkpoints}
    _initialize_by_signature(program, traces)
    random = {handle(v) for v in program.random_states.values()}
    accesses = {key: Accesses.of(trace, random) for key, trace in traces.items()}
    saved = [own for key in checkpoints for own in saved_variables(graph, key)]
    weights = _weights(program, traces, accesses, saved)
    described = parameters_of(_describing(traces, accesses, weights), {handle(v): v for v in weights})
    ids = {handle(v) for v in weights}
    others = [*program.variables.values(), *program.random_states.values()]
    states = [v for v in others if handle(v) not in ids]
    generators = [v for v in states if is_generator(v)]
    names = _names(program, traces, weights)
    traced = Traced(traces, weights, states, generators, named=True, weight_names=names)
    signatures, content = emitted_file("the file", traced, started, check=check)
    shapes = [spec.shape for key, own in accesses.items() if own.trains for spec in traces[key].arguments.values()]
    rows = next((shape[0] for shape in shapes if shape.rank), None)
    manifest = _manifest(graph, name, tuple(own.parameter for own in described), rows)
    return _described(content, replace(manifest, random_states=signatures.random_states, checked=check))


def _described(content: bytes, manifest: Manifest) -> bytes:
    """Return a file with its manifest.

    A file with custom signature names gets none: `TrainableModel.load` then finds the roles of its signatures.
    """
    try:
        check_signatures(read(content, manifest.name), manifest.name)
        known = Manifest.from_json(read(adapted(content, manifest.name).content, "").metadata[METADATA_NAME], "")
    except ModelError:
        return content
    if manifest.loss is None:
        manifest = replace(manifest, loss=known.loss, from_logits=known.from_logits, outputs=())
    return with_metadata(content, METADATA_NAME, manifest.to_json().encode())


def _initialize_by_signature(program: Program, traces: Mapping[str, Trace]) -> None:
    """Run a signature without inputs, such as `initialize`, to set variables that no initializer sets.

    Variables that a signature sets from a checkpoint or from its inputs are zero until then.

    Raises:
        ExportError: A variable is read but never set, so the file itself does not run either.
    """
    missing = {key for key, own in program.graph.variables.items() if own.read_by and not own.initialized}
    for key, trace in traces.items():
        assigned = set(program.graph.assigned_by(key))
        if missing & assigned and not trace.arguments and not assigned & set(program.graph.read_by(key)):
            trace.concrete()
            missing -= assigned
    graph = program.graph
    settable = {own for key in graph.signatures for own in {*graph.assigned_by(key)} - {*graph.read_by(key)}}
    never = sorted(own.name for own in missing - settable)
    if never:
        raise ExportError(
            f"the variable {never[0]!r} is read but never set first ({len(never)} in total), so the "
            "original file does not run either; see D302 of odt-sim doctor: Keras 3 variables need an attribute of "
            "the tf.Module that refers to them"
        )


def _weights(
    program: Program, traces: Mapping[str, Trace], accesses: Mapping[str, Accesses], saved: Sequence[Handle]
) -> list[tf.Variable]:
    """Return the weights: the variables that the file's `parameters` returns as `a0..aN`, else those that inference reads.

    The latter are in the order of a checkpoint, followed by the others in the order of their use.
    """
    variables = {handle(v): v for v in [*program.variables.values(), *program.random_states.values()]}
    shown = traces["parameters"].concrete.structured_outputs if "parameters" in traces else {}
    if shown and set(shown) == {f"a{i}" for i in range(len(shown))}:
        own = parameters_of({"parameters": traces["parameters"]}, variables)
        return [weight.variable for weight in own if weight.variable is not None]
    inference = [own.read for own in accesses.values() if own.infers] or [own.read for own in accesses.values()]
    used = dict.fromkeys(key for read in inference for key in read if variables[key].dtype == tf.float32)
    first = [handle(program.variables[own]) for own in saved if own in program.variables]
    return [variables[key] for key in dict.fromkeys([*(key for key in first if key in used), *used])]


def _names(program: Program, traces: Mapping[str, Trace], weights: Sequence[tf.Variable]) -> list[str]:
    """Return the weights' names in an added `restore`: those in the file's `parameters`, else `a0..aN`."""
    names = dict(zip(map(handle, weights), numbered("a", weights), strict=True))
    if "parameters" in traces:
        trace, variables = traces["parameters"], {handle(v): v for v in program.variables.values()}
        for name, output in trace.concrete.structured_outputs.items():
            shown = variable_of(trace, output, variables)
            if shown is not None and handle(shown) in names:
                names[handle(shown)] = name
    return unique(list(names.values()))


def _describing(
    traces: Mapping[str, Trace], accesses: Mapping[str, Accesses], weights: Sequence[tf.Variable]
) -> dict[str, Trace]:
    """Return the traces that `parameters_of` needs: the training steps, and a reader of the weights."""
    if not weights:
        raise ExportError("no signature reads a float32 variable, so it has no weights to train")
    steps = {f"train_{key}": traces[key] for key, own in accesses.items() if own.trains}
    return {**steps, "parameters": Trace(reader({handle(v): v for v in weights}, numbered("a", weights)), [])}


def _manifest(graph: Graph, name: str, parameters: tuple[Parameter, ...], rows: int | None) -> Manifest:
    """Return the file's manifest if it fits the parameters, else a new one without a loss."""
    own = graph.metadata.get(METADATA_NAME)
    known = Manifest.from_json(own, name) if own is not None else None
    if known is not None and [p.shape for p in known.parameters] == [p.shape for p in parameters]:
        return replace(known, batch_size=rows or known.batch_size)
    return Manifest(name, parameters, None, True, {}, rows or DEFAULT_BATCH_SIZE)
