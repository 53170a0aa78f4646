"""Write a user's functions as a SavedModel, and convert SavedModels with training signatures."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from time import perf_counter
from typing import Any

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.signatures import Program, Signatures, emit_signatures, handle
from odt_sim.export.keras.optimizers import settings_of
from odt_sim.export.keras.output_losses import compiled_outputs
from odt_sim.export.keras.stateful_random import untracked_states
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.trace import arguments_of
from odt_sim.export.self_check.exports import check_functions
from odt_sim.export.sources import load
from odt_sim.export.trace.inlining import inlined, temporary_variables
from odt_sim.export.trace.tracing import Function, traced
from odt_sim.export.trace.user_functions import deprecations_ignored, keras_models
from odt_sim.export.trace.user_parameters import is_generator, parameters_of
from odt_sim.model.contract.manifest import METADATA_NAME, Manifest, Output
from odt_sim.model.contract.names import full, is_one_of, parts
from odt_sim.model.contract.signatures import REQUIRED
from odt_sim.model.editing.metadata import with_metadata
from odt_sim.model.trainable import DEFAULT_BATCH_SIZE

DESCRIPTION = Path("assets.extra") / "odt_sim.json"  # the SavedModel format's folder for additional files


def write_saved_model(model: tf.Module, functions: dict[str, Function], path: Path, *, steps_of_keras: bool) -> None:
    """Write a SavedModel, with the manifest entries that its graph does not contain."""
    variables = {id(v): v for function in functions.values() for v in function.variables}
    model.variables_of_signatures = list(variables.values())  # TensorFlow requires all, but Keras tracks only some
    try:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        with deprecations_ignored():
            tf.saved_model.save(model, str(path), signatures=functions, options=options)
        (path / DESCRIPTION).parent.mkdir(exist_ok=True)
        (path / DESCRIPTION).write_text(json.dumps(_description(model, functions, steps_of_keras)))
    except (OSError, tf.errors.OpError) as error:
        line = str(error).strip().partition("\n")[0]
        raise ExportError(f"{path}: cannot write the SavedModel ({line}); give a writable directory") from error
    finally:
        del model.variables_of_signatures


def _description(model: tf.Module, functions: dict[str, Function], steps_of_keras: bool) -> dict[str, Any]:
    inputs, names = _names(arguments_of(functions["train"]), functions["infer"].structured_outputs)
    compiled = [keras_model for keras_model in keras_models(model) if keras_model.compiled]
    outputs = compiled_outputs(compiled[0], names) if compiled else tuple(map(Output, names))
    settings = settings_of(compiled[0].optimizer) if compiled and steps_of_keras else {}
    return {
        "name": type(model).__name__,
        "loss": outputs[0].loss,
        "from_logits": outputs[0].from_logits,
        "delta": outputs[0].delta,
        "inputs": inputs,
        "outputs": list(map(asdict, outputs)),
        "optimizer": {key: value for key, value in settings.items() if not isinstance(value, dict)},  # no schedule
    }


def _names(arguments: Iterable[tf.TensorSpec], outputs: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of inputs of `train` and outputs of `infer` in the manifest: `x` and "" for a single one.

    Raises:
        ExportError: A single one has a name for one of several.
    """
    found = {
        "x": parts({spec.name: spec for spec in arguments}, "x"),
        "logits": parts(dict.fromkeys(outputs), "logits"),
    }
    for prefix, named in found.items():
        if len(named) == 1 and "" not in named:
            [name] = named
            raise ExportError(f"{full(prefix, name)}: expected {prefix} as the name of a single tensor; rename it")
    inputs, answers = found.values()
    return tuple(inputs) if len(inputs) > 1 else ("x",), tuple(answers) if len(answers) > 1 else ("",)


def converted(path: Path, signature_keys: Sequence[str] | None, batch_size: int | None, *, check: bool = True) -> bytes:
    """Return the `.tflite` file of a SavedModel; see `tflite_model.convert_saved_model`."""
    started = perf_counter()
    with _gradient_warnings_ignored():
        loaded = load(path)
    functions = _chosen(loaded, signature_keys, path)
    variables = {handle(v): v for function in functions.values() for v in function.variables}
    layers = {layer for v in variables.values() for layer in v.name.split("/")[:-1]}
    traces = {key: _trace(key, function, layers, batch_size) for key, function in functions.items()}
    described = parameters_of(traces, variables) if "parameters" in traces else []
    weights = {handle(own.variable): own.variable for own in described if own.variable is not None}
    unused = temporary_variables(traces.values(), _metrics_of_keras2(loaded, path)) - set(weights)
    temporary = {key: variables[key] for key in unused}
    states = [v for key, v in variables.items() if key not in weights]
    states += untracked_states(traces, set(variables))
    program = Program(
        traces={key: inlined(trace, temporary=temporary) for key, trace in traces.items()} if temporary else traces,
        weights=list(weights.values()),
        states=states,
        generators=[v for v in states if is_generator(v)],
    )
    signatures, content = emitted_file(str(path), program, started, check=check)
    if not functions.keys() >= set(REQUIRED):
        return content
    inputs = [spec for spec in traces["train"].arguments.values() if is_one_of(spec.name, ("x",))]
    rows = inputs[0].shape[0] if inputs else None
    manifest = Manifest(
        **{"name": path.name, "loss": None, "from_logits": True, "optimizer": {}} | _read_description(path, traces),
        parameters=tuple(own.parameter for own in described),
        batch_size=rows or DEFAULT_BATCH_SIZE,
        random_states=signatures.random_states,
        checked=check,
    )
    return with_metadata(content, METADATA_NAME, manifest.to_json().encode())


def emitted_file(name: str, program: Program, started: float, *, check: bool) -> tuple[Signatures, bytes]:
    """Return the signatures of traced functions, and the file with them, which is compared with the functions if `check`.

    Args:
        name: The name of the functions' source, for errors.
        program: The functions.
        started: When the export began, as `perf_counter`.
        check: Whether to compare the file with the functions.
    """
    signatures = emit_signatures(program)
    content = convert(signatures)
    if check:
        check_functions(name, content, program, signatures, perf_counter() - started)
    return signatures, content


@contextmanager
def _gradient_warnings_ignored() -> Iterator[None]:
    """Silence TensorFlow's warnings about missing gradients of loaded functions: training steps contain their gradients."""
    logger, wanted = logging.getLogger("absl"), lambda record: "unsaved custom gradients" not in record.getMessage()
    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)


def _chosen(loaded: Any, keys: Sequence[str] | None, path: Path) -> dict[str, Function]:
    found = dict(loaded.signatures)
    wanted = REQUIRED if keys is None else keys
    missing = [key for key in wanted if key not in found]
    if missing:
        raise ExportError(
            f"{path}: no signature {missing[0]!r}, found {', '.join(found) or 'none'}; save it with the model"
        )
    return {key: found[key] for key in (found if keys is None else keys)}


def _trace(key: str, function: Function, layers: set[str], batch_size: int | None) -> Trace:
    _, named = function.structured_input_signature
    specs = [tf.TensorSpec.from_spec(named[name], name) for name in named]

    def call(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(function(**{spec.name: value for spec, value in zip(specs, values, strict=True)}))

    call.__name__ = key
    try:
        return inlined(traced(call, specs, layers), batch_size)
    except ExportError as error:
        raise ExportError(f"`{key}`: {error}") from error


def _metrics_of_keras2(loaded: Any, path: Path) -> set[int]:
    """Return the handle ids of the variables in which a Keras 2 model accumulates metrics, such as the loss."""
    keys = [
        key.partition("/.ATTRIBUTES")[0] for key, _ in tf.train.list_variables(str(path / "variables" / "variables"))
    ]
    metrics = [key.split("/") for key in keys if "/keras_api/metrics/" in key]
    return {handle(reduce(_child, parts, loaded)) for parts in metrics}


def _child(parent: Any, name: str) -> Any:
    return parent[int(name)] if name.isdigit() else getattr(parent, name)


def _read_description(path: Path, traces: Mapping[str, Trace]) -> dict[str, Any]:
    """Return the manifest entries that `save_model` wrote; of another SavedModel, those that its signatures imply."""
    try:
        written = dict(json.loads((path / DESCRIPTION).read_text()))
    except FileNotFoundError:
        inputs, names = _names(traces["train"].arguments.values(), traces["infer"].concrete.structured_outputs)
        return {"inputs": inputs, "outputs": tuple(map(Output, names))}
    outputs = [Output(**{**output, "metrics": tuple(output["metrics"])}) for output in written.get("outputs", ())]
    return {**written, "inputs": tuple(written.get("inputs", ("x",))), "outputs": tuple(outputs)}
