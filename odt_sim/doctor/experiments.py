"""Experiments on a file; each starts a fresh engine and returns its measurements as JSON types.

They run in the subprocess of `trial`, because native code may crash.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from odt_sim._support.system import peak_memory
from odt_sim.data.store.columns import Array
from odt_sim.device.batches import Batch, batches
from odt_sim.device.engines import Engine
from odt_sim.device.random import random_rows
from odt_sim.device.runtime import Runtime
from odt_sim.doctor.loss import Measured, matched
from odt_sim.doctor.runners import runners
from odt_sim.doctor.subject import RATE, Inputs, Subject, milliseconds, targets, zeros
from odt_sim.errors import ModelError
from odt_sim.model.trainable import TrainableModel

STEPS = 5
"""The number of steps of an experiment that trains."""

Result = dict[str, Any]


def load(subject: Subject) -> Result:
    """Load the file."""
    started = time.perf_counter()
    subject.start()
    return {"seconds": time.perf_counter() - started}


def declared(subject: Subject) -> Result:
    """Call every signature with a role on zeros of its declared shapes; if the step fails, try other target shapes.

    Returns:
        By role, the error or an empty text; and as `y` the shape with which the step works, if it is not the declared
        one.
    """
    found: Result = {
        role: _error(partial(_call, subject, role)).removeprefix(f"{subject.where}: ") for role in subject.roles
    }
    if found.get("train"):
        shape = _working_targets(subject)
        if shape is not None:
            found["y"] = list(shape)
    return found


def _call(subject: Subject, role: str) -> None:
    declared = subject.signatures[subject.name(role)].inputs
    subject.start().call(subject.name(role), **{name: zeros(tensor) for name, tensor in declared.items()})


def _error(work: Callable[[], Any]) -> str:
    try:
        work()
    except (ModelError, ValueError, RuntimeError, TypeError) as error:
        return str(error) or type(error).__name__
    return ""


def _working_targets(subject: Subject) -> tuple[int, ...] | None:
    """Return a shape of the targets with which the step runs; None if it runs with none, or there is no inference."""
    if "infer" not in subject.roles:
        return None
    random, engine = np.random.default_rng(0), subject.start()
    x = subject.x(random)
    outputs = subject.infer(engine, x)
    first = subject.input("train", "y").shape[:1] or (-1,)
    for shape in ((*first, *outputs.shape[1:]), first, (*first, 1)):
        tried = subject.with_targets(shape)
        y = targets(tried.input("train", "y"), random, outputs.shape, len(x))
        if not _error(partial(tried.train, tried.start(), subject.trained_on(engine, x), y)):
            return shape
    return None


def loss(subject: Subject) -> Result:
    """Compare the losses of successive steps with losses of the outputs of inference, before and after each step."""
    random, engine, calls = np.random.default_rng(1), subject.start(), []
    _write_random(subject, engine, random)
    for x, y in subject.batches(random, engine, STEPS):
        before = subject.infer(engine, x)
        returned = subject.train(engine, subject.trained_on(engine, x), y)
        calls.append(Measured(returned, y, before, subject.infer(engine, x)))
    if not np.isfinite([call.returned for call in calls]).all():
        return {"finite": False}
    match = matched(calls)
    return {"finite": True, **match._asdict(), "returned": [call.returned for call in calls]}


def _write_random(subject: Subject, engine: Engine, random: np.random.Generator) -> None:
    """Write small random weights if the file can take them, because shipped weights may be NaN or zero."""
    names = _shared_names(subject)
    if names and _error(lambda: engine.call(subject.name("restore"), **_random_weights(subject, names, random))):
        raise ModelError("weights cannot be written")


def _random_weights(subject: Subject, names: Mapping[str, str], random: np.random.Generator) -> Inputs:
    """Return random weights near the shipped ones, by the writing signature's names."""
    read = subject.parameters(subject.start())
    made = {}
    for written, name in names.items():
        value = read[name]
        noise = random.normal(0, 0.3 / np.sqrt(max(1, value.shape[0] if value.ndim > 1 else 10)), value.shape)
        scale = value.ndim < 2 and value.size > 0 and bool((value > 0).all())  # or a variance: it must stay above 0
        made[written] = (np.abs(noise) + 0.5 if scale else np.nan_to_num(value) + noise).astype(value.dtype)
    return made


def _shared_names(subject: Subject) -> dict[str, str]:
    """Return the reading signature's name for each name of the writing signature; empty if they do not match."""
    if not {"parameters", "restore"} <= subject.roles.keys():
        return {}
    read = subject.signatures[subject.name("parameters")].outputs
    written = subject.signatures[subject.name("restore")].inputs
    if read.keys() == written.keys():
        return {name: name for name in written}
    if len(read) != len(written):
        return {}

    def numbered(name: str) -> tuple[str, int]:  # a10 comes after a9
        letters = name.rstrip("0123456789")
        return letters, int(name[len(letters) :] or 0)

    return dict(zip(sorted(written, key=numbered), sorted(read, key=numbered), strict=True))


def step(subject: Subject) -> Result:
    """Take steps and return the names of weights that never change, and of weights that become NaN or infinite."""
    if subject.several:
        runtime, rows = _runtime(subject)
        return _weight_changes(
            lambda: runtime.call("parameters"), (runtime.train([batch], [float(RATE)]) for batch in rows)
        )
    random, engine = np.random.default_rng(2), subject.start()
    pairs = subject.batches(random, engine, STEPS)
    steps = (subject.train(engine, subject.trained_on(engine, x), y) for x, y in pairs)
    return _weight_changes(lambda: subject.parameters(engine), steps)


def _runtime(subject: Subject) -> tuple[Runtime, list[Batch]]:
    """Return a fresh runtime of a file of odt_sim with several inputs or outputs, and batches of random rows."""
    model = TrainableModel.from_content(subject.content, where=subject.where, flex=subject.runtime.runs_flex)
    rows = random_rows(model, np.random.default_rng(2), STEPS * model.batch_size)
    return Runtime(model, subject.runtime), list(batches(model, *rows))


def _weight_changes(read: Callable[[], Mapping[str, Array]], steps: Iterable[Any]) -> Result:
    """Return the names of weights that never change, and of weights that become NaN or infinite.

    Args:
        read: Returns the weights.
        steps: An iterator that takes a step for each item.
    """
    before = {name: np.array(value) for name, value in read().items()}
    after: Mapping[str, Array] = before
    changed = set[str]()
    for _ in steps:
        after = read()
        changed |= {name for name, value in after.items() if value.tobytes() != before[name].tobytes()}
    broken = [name for name, value in after.items() if np.isfinite(before[name]).all() and not np.isfinite(value).all()]
    return {
        "weights": len(before),
        "unchanged": [name for name in before if name not in changed],
        "not_finite": broken,
    }


def order(subject: Subject) -> Result:
    """Write a different value to each weight and read them back.

    Returns:
        `moved`: pairs of a written name and the name under which its value came back; `lost`: names of values that did not
        come back; `compared`: the number of weights.
    """
    names = _shared_names(subject)
    engine = subject.start()
    read = subject.parameters(engine)
    written = {name: np.full(read[own].shape, 1 + i, read[own].dtype) for i, (name, own) in enumerate(names.items())}
    if not written:
        return {"compared": 0, "moved": [], "lost": []}
    declared = subject.signatures[subject.name("restore")].inputs
    inputs = dict(written)
    for name, value in written.items():
        shape = declared[name].shape
        if min(shape, default=0) >= 0 and np.prod(shape) == value.size:  # such as a transposed kernel
            inputs[name] = value.reshape(shape)
    engine.call(subject.name("restore"), **inputs)
    found = {name: float(value.reshape(-1)[0]) for name, value in subject.parameters(engine).items() if value.size}
    numbers = {1.0 + i: name for i, name in enumerate(names)}
    back = {numbers[value]: name for name, value in found.items() if value in numbers}
    moved = [[name, own] for name, own in back.items() if names[name] != own]
    lost = [name for name, own in names.items() if name not in back and own in found]
    return {"compared": len(names), "moved": moved, "lost": lost}


def mode(subject: Subject) -> Result:
    """Infer twice on the same rows, and once with other rows after the first one."""
    random, engine = np.random.default_rng(3), subject.start()
    before = {name: np.array(value) for name, value in subject.parameters(engine).items()}
    static = subject.input("infer", "x").shape[:1]
    rows = static[0] if static and static[0] > 0 else 4
    x, others = (subject.x(random, rows) for _ in range(2))
    others[0] = x[0]
    one, again, beside = (np.array(subject.infer(engine, batch)) for batch in (x, x, others))
    after = subject.parameters(engine)
    scale = max(1e-6, float(np.abs(one).max()))
    return {
        "rows": rows,
        "random": float(np.abs(one - again).max()) / scale,
        "dependent": float(np.abs(one[0] - beside[0]).max()) / scale,
        "changed": [name for name in before if before[name].tobytes() != after[name].tobytes()],
    }


def speed(subject: Subject) -> Result:
    """Time the step and the inference, and measure the peak memory of this process, Python included."""
    if subject.several:
        runtime, [batch, *_] = _runtime(subject)
        rows, infer = len(batch.x), milliseconds(lambda: runtime.infer(batch.x))
        train = milliseconds(lambda: runtime.train([batch], [float(RATE)]))
    else:
        engine, raw = subject.start(), subject.x(np.random.default_rng(4))
        x, y = subject.batch(engine)
        rows, infer = subject.rows, milliseconds(lambda: subject.infer(engine, raw))
        train = milliseconds(lambda: subject.train(engine, x, y))
    return {"rows": rows, "infer_ms": infer, "train_ms": train, "bytes": peak_memory()}


EXPERIMENTS: Mapping[str, tuple[Callable[[Subject], Result], frozenset[str]]] = {
    "load": (load, frozenset()),
    "declared": (declared, frozenset()),
    "loss": (loss, frozenset({"train", "infer"})),
    "step": (step, frozenset({"train", "infer", "parameters"})),
    "order": (order, frozenset({"parameters", "restore"})),
    "mode": (mode, frozenset({"infer"})),
    "speed": (speed, frozenset({"train", "infer"})),
}
"""The experiments of a diagnosis, with the roles that each needs, in the order in which they run."""


OF_SEVERAL = ("load", "declared", "step", "order", "speed")
"""The experiments on a file with several inputs or outputs; the loss is not compared, since the manifest names it."""


def possible(roles: Mapping[str, Any]) -> list[str]:
    """Return the experiments for which a file has the signatures."""
    return [name for name, (_, needs) in EXPERIMENTS.items() if needs <= roles.keys()]


def run(name: str, subject: Subject, y: tuple[int, ...] | None) -> Result:
    """Run one experiment, with the shape `y` of the targets instead of the declared one if it is given."""
    if name == "runners":
        return runners(subject)
    declared_only = y is None or name == "declared" or (subject.several and name in ("step", "speed"))
    return EXPERIMENTS[name][0](subject if declared_only or y is None else subject.with_targets(y))
