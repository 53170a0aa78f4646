"""Experiments on a file; each starts a fresh engine and returns its measurements as JSON types.

They run in the subprocess of `trial`, because native code may crash. All but `load` and `runners` need the signatures of
the contract, which the adaptation of a foreign file adds.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from odt_sim._support.system import peak_memory
from odt_sim._support.text import one_line
from odt_sim.data.store.columns import Array, Rows, arrays_of, rows_of
from odt_sim.device.batches import Batch, batches
from odt_sim.device.engines import RuntimeChoice
from odt_sim.device.random import LENGTH, random_rows
from odt_sim.device.runtime import Runtime
from odt_sim.doctor.loss import Measured, matched
from odt_sim.errors import OdtSimError
from odt_sim.model.contract.signatures import REQUIRED
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.reading import flatbuffer
from odt_sim.model.reading.flatbuffer import Signature
from odt_sim.model.reading.graph import CALLS
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights

_SUBGRAPHS = frozenset(option for options in CALLS.values() for option in options)
"""The options of ops that contain the index of a subgraph."""


STEPS = 5
"""The number of steps of an experiment that trains."""

RATE = 0.01
"""The learning rate, if the step takes one."""

SCALES = (1.0, 3.0, 0.5, 2.0)
"""The factors of the inputs in successive batches, so that their losses differ."""

SECONDS, MOST_CALLS = 0.4, 200
"""The limits of the time for which a call is timed, after the first call."""

Result = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """The file that an experiment runs.

    Attributes:
        content: The file.
        where: Its name.
        runtime: The runtime that runs it.
    """

    content: bytes
    where: str
    runtime: RuntimeChoice

    @cached_property
    def model(self) -> TrainableModel:
        """The file as a trainable model."""
        return TrainableModel.from_content(self.content, where=self.where, flex=self.runtime.runs_flex)

    def start(self) -> Runtime:
        """Return the model on a fresh engine."""
        return Runtime(self.model, self.runtime)

    def batches(self, seed: int, count: int) -> Iterator[Batch]:
        """Yield batches of random rows."""
        random, size = np.random.default_rng(seed), self.model.batch_size
        for i in range(count):
            x, y = random_rows(self.model, random, size)
            yield next(batches(self.model, _scaled(x, SCALES[i % len(SCALES)]), y))


def load(subject: Subject) -> Result:
    """Load the file."""
    started = time.perf_counter()
    subject.runtime(subject.content, subject.where)
    return {"seconds": time.perf_counter() - started}


def declared(subject: Subject) -> Result:
    """Call every required signature on zeros of its declared shapes, and return the error of each that fails."""
    failures: Result = {}
    for name in REQUIRED:
        try:
            inputs = _zeros(subject.model.signatures[name], subject.model.batch_size)
            subject.runtime(subject.content, subject.where).call(name, **inputs)
        except (OdtSimError, ValueError, RuntimeError, TypeError) as error:
            failures[name] = one_line(error).removeprefix(f"{subject.where}: ")
    return failures


def loss(subject: Subject) -> Result:
    """Compare the losses of successive steps with losses of the outputs of inference, before and after each step."""
    runtime, calls = subject.start(), []
    runtime.write(_random_weights(runtime.initial))  # shipped weights may be NaN or zero
    for batch in subject.batches(1, STEPS):
        before = _first(runtime.infer(batch.x))
        [returned] = runtime.train([batch], [RATE])
        calls.append(Measured(returned, _first(batch.y), before, _first(runtime.infer(batch.x))))
    if not np.isfinite([call.returned for call in calls]).all():
        return {"finite": False}
    if len(subject.model.outputs) > 1:  # the manifest names their losses
        return {"finite": True, "relation": None}
    return {"finite": True, **matched(calls)._asdict(), "returned": [call.returned for call in calls]}


def _random_weights(shipped: Weights) -> Weights:
    """Return random weights near the shipped ones."""
    random, tensors = np.random.default_rng(1), []
    for value in shipped.tensors():
        noise = random.normal(0, 0.3 / np.sqrt(max(1, value.shape[0] if value.ndim > 1 else 10)), value.shape)
        scale = value.ndim < 2 and value.size > 0 and bool((value > 0).all())  # or a variance: it must stay above 0
        tensors.append((np.abs(noise) + 0.5 if scale else np.nan_to_num(value) + noise).astype(np.float32))
    return Weights.from_tensors(shipped.layout, tensors)


def step(subject: Subject) -> Result:
    """Take steps and return the names of weights that never change, and of weights that become NaN or infinite."""
    runtime = subject.start()
    before = after = _weights(runtime)
    changed = set[str]()
    for batch in subject.batches(2, STEPS):
        runtime.train([batch], [RATE])
        after = _weights(runtime)
        changed |= _differing(before, after)
    broken = [name for name, value in after.items() if np.isfinite(before[name]).all() and not np.isfinite(value).all()]
    unchanged = [name for name in before if name not in changed]
    return {"weights": len(before), "unchanged": unchanged, "not_finite": broken}


def mode(subject: Subject) -> Result:
    """Infer twice on the same rows, and once with other rows after the first one."""
    runtime, random = subject.start(), np.random.default_rng(3)
    before = _weights(runtime)
    x, others = (random_rows(subject.model, random, subject.model.batch_size)[0] for _ in range(2))
    pairs = zip(arrays_of(x).items(), arrays_of(others).values(), strict=True)
    beside = rows_of({name: np.concatenate([array[:1], other[1:]]) for (name, array), other in pairs})
    once, again, next_to_others = (arrays_of(runtime.infer(rows)) for rows in (x, x, beside))
    scale = max(1e-6, *(float(np.abs(output).max()) for output in once.values()))
    first, first_beside = ({name: output[:1] for name, output in answers.items()} for answers in (once, next_to_others))
    return {
        "random": _difference(once, again) / scale,
        "dependent": _difference(first, first_beside) / scale,
        "changed": sorted(_differing(before, _weights(runtime))),
    }


def speed(subject: Subject) -> Result:
    """Time the step and the inference, and measure the peak memory of this process, Python included."""
    runtime, [batch] = subject.start(), subject.batches(4, 1)
    return {
        "rows": len(batch.x),
        "infer_ms": milliseconds(lambda: runtime.infer(batch.x)),
        "train_ms": milliseconds(lambda: runtime.train([batch], [RATE])),
        "bytes": peak_memory(),
    }


def runners(subject: Subject) -> Result:
    """Return for each signature the numbers of the ops that XNNPACK runs, and the milliseconds of a call on zeros.

    Either is None where LiteRT cannot load or run the signature.
    """
    engine, results = subject.runtime(subject.content, subject.where), {}
    for name, signature in flatbuffer.read(subject.content, subject.where).signatures.items():
        try:
            inputs = _zeros(signature, LENGTH)
            duration = milliseconds(lambda name=name, inputs=inputs: engine.call(name, **inputs))  # type: ignore[misc]
        except (OdtSimError, ValueError, RuntimeError, TypeError):
            duration = None
        results[name] = {"delegated": delegated(subject.content, name), "ms": duration}
    return results


EXPERIMENTS: Mapping[str, Callable[[Subject], Result]] = {
    experiment.__name__: experiment for experiment in (load, declared, loss, step, mode, speed, runners)
}

OF_DIAGNOSIS = ("load", "declared", "loss", "step", "mode", "speed")
"""The experiments of a diagnosis, in the order in which they run."""


def milliseconds(call: Callable[[], Any]) -> float:
    """Return the median time of a call in milliseconds, without the first call."""
    call()
    times = list[float]()
    until = time.perf_counter() + SECONDS
    while not times or (time.perf_counter() < until and len(times) < MOST_CALLS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times) * 1000


def _zeros(signature: Signature, rows: int) -> dict[str, Array]:
    """Return zeros of the declared shapes of a signature's inputs, by name."""
    return {
        name: np.zeros(
            [size if size >= 0 else LENGTH if axis else rows for axis, size in enumerate(tensor.shape)], tensor.dtype
        )
        for name, tensor in signature.inputs.items()
    }


def _scaled(rows: Rows, factor: float) -> Rows:
    return rows_of(
        {
            name: (array * factor).astype(array.dtype) if array.dtype.kind == "f" else array
            for name, array in arrays_of(rows).items()
        }
    )


def _first(rows: Rows) -> Array:
    return next(iter(arrays_of(rows).values()))


def _weights(runtime: Runtime) -> dict[str, Array]:
    """Return the engine's weights by the parameters' names."""
    outputs = runtime.call("parameters")
    return {parameter.name: np.array(outputs[f"a{i}"]) for i, parameter in enumerate(runtime.model.parameters)}


def _differing(before: Mapping[str, Array], after: Mapping[str, Array]) -> set[str]:
    return {name for name, value in after.items() if value.tobytes() != before[name].tobytes()}


def _difference(outputs: Mapping[str, Array], others: Mapping[str, Array]) -> float:
    """Return the largest difference between two inferences."""
    return max(float(np.abs(output - others[name]).max()) for name, output in outputs.items())


def delegated(content: bytes, signature: str) -> list[int] | None:
    """Return the numbers of a signature's ops that the delegate runs; None if LiteRT cannot run the signature.

    LiteRT shows only the ops of the main subgraph, so the signature's subgraph becomes the main one. After a call, only
    tensors inside the delegate have no memory; the tensors that it returns are its outputs.
    """
    try:
        interpreter = Interpreter(model_content=_as_main(content, signature), num_threads=1)
        interpreter.allocate_tensors()
        for tensor in interpreter.get_input_details():
            interpreter.set_tensor(tensor["index"], np.zeros(tensor["shape"], tensor["dtype"]))
        interpreter.invoke()
        ops = interpreter._get_ops_details()
    except (ValueError, RuntimeError, TypeError):
        return None
    handles = {tensor["index"] for tensor in interpreter.get_tensor_details() if tensor["dtype"] is np.object_}
    delegates = [op for op in ops if op["op_name"] == "DELEGATE"]
    outputs = {int(i) for op in delegates for i in op["outputs"]}
    others = [op for op in ops if op["op_name"] != "DELEGATE"]
    return [op["index"] for op in others if delegates and _is_delegated(interpreter, op, outputs, handles)]


def _is_delegated(interpreter: Any, op: Any, outputs: set[int], handles: set[int]) -> bool:
    """Return whether the delegate runs an op; reading the handle of a variable would crash LiteRT."""
    tensors = [int(i) for i in (op["outputs"] if len(op["outputs"]) else op["inputs"][:1]) if i >= 0]
    return any(i in outputs or (i not in handles and _has_no_memory(interpreter, i)) for i in tensors[:1])


def _has_no_memory(interpreter: Any, tensor: int) -> bool:
    try:
        interpreter.get_tensor(tensor)
    except ValueError:
        return True
    return False


def _as_main(content: bytes, signature: str) -> bytes:
    """Return a file whose main subgraph is the subgraph of a signature."""
    model = unpacked(content)
    [index] = [s.subgraphIndex for s in model.signatureDefs or [] if s.signatureKey == signature.encode()] or [0]
    places = {0: index, index: 0}
    model.subgraphs[0], model.subgraphs[index] = model.subgraphs[index], model.subgraphs[0]
    for definition in model.signatureDefs or []:
        definition.subgraphIndex = places.get(definition.subgraphIndex, definition.subgraphIndex)
    operators = (operator for subgraph in model.subgraphs for operator in subgraph.operators or ())
    for options in (
        options for operator in operators for options in (operator.builtinOptions, operator.builtinOptions2)
    ):
        fields = {} if options is None else vars(options)
        fields.update({name: places.get(fields[name], fields[name]) for name in _SUBGRAPHS & fields.keys()})
    return packed(model)
