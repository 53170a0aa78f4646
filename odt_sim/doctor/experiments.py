"""Experiments on a file; each starts a fresh engine and returns its measurements as JSON types.

They run in the subprocess of `trial`, because native code may crash.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from odt_sim._support.system import peak_memory
from odt_sim.data.columns import Array
from odt_sim.device.engines import Engine
from odt_sim.doctor import several
from odt_sim.doctor.loss import Measured, matched
from odt_sim.doctor.runners import runners
from odt_sim.doctor.subject import Inputs, Subject, targets, zeros
from odt_sim.doctor.timing import milliseconds
from odt_sim.doctor.weight_changes import weight_changes
from odt_sim.errors import ModelError

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
        if not _error(partial(_step, tried, subject.trained_on(engine, x), y)):
            return shape
    return None


def _step(subject: Subject, x: Array, y: Array) -> None:
    subject.train(subject.start(), x, y)


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
        made[written] = (np.abs(noise) + 0.5 if _is_scale(value) else np.nan_to_num(value) + noise).astype(value.dtype)
    return made


def _is_scale(value: Array) -> bool:
    """Return whether a value may be a variance or a scale, which must stay above 0."""
    return value.ndim < 2 and value.size > 0 and bool((value > 0).all())


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
    pairs = zip(sorted(written, key=_numbered), sorted(read, key=_numbered), strict=True)
    return dict(pairs)


def _numbered(name: str) -> tuple[str, int]:
    """Return a key that sorts a10 after a9."""
    digits = len(name) - len(name.rstrip("0123456789"))
    return (name[: len(name) - digits], int(name[len(name) - digits :] or 0))


def step(subject: Subject) -> Result:
    """Take steps and return the names of weights that never change, and of weights that become NaN or infinite."""
    random, engine = np.random.default_rng(2), subject.start()
    batches = subject.batches(random, engine, STEPS)
    steps = (subject.train(engine, subject.trained_on(engine, x), y) for x, y in batches)
    return weight_changes(lambda: subject.parameters(engine), steps)


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
    inputs = {name: _as_declared(value, declared[name].shape) for name, value in written.items()}
    engine.call(subject.name("restore"), **inputs)
    found = {name: float(value.reshape(-1)[0]) for name, value in subject.parameters(engine).items() if value.size}
    numbers = {1.0 + i: name for i, name in enumerate(names)}
    back = {numbers[value]: name for name, value in found.items() if value in numbers}
    moved = [[name, own] for name, own in back.items() if names[name] != own]
    lost = [name for name, own in names.items() if name not in back and own in found]
    return {"compared": len(names), "moved": moved, "lost": lost}


def _as_declared(value: Array, shape: tuple[int, ...]) -> Array:
    """Return a value in the declared shape if that has as many elements, such as a transposed kernel."""
    fixed = [size for size in shape if size >= 0]
    if len(fixed) == len(shape) and int(np.prod(fixed)) == value.size:
        return value.reshape(shape)
    return value


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
    engine = subject.start()
    raw = subject.x(np.random.default_rng(4))
    infer = milliseconds(lambda: subject.infer(engine, raw))
    x, y = subject.batch(engine)
    train = milliseconds(lambda: subject.train(engine, x, y))
    return {"rows": subject.rows, "infer_ms": infer, "train_ms": train, "bytes": peak_memory()}


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


def possible(roles: Mapping[str, Any]) -> list[str]:
    """Return the experiments for which a file has the signatures."""
    return [name for name, (_, needs) in EXPERIMENTS.items() if needs <= roles.keys()]


def run(name: str, subject: Subject, y: tuple[int, ...] | None) -> Result:
    """Run one experiment, with the shape `y` of the targets instead of the declared one if it is given."""
    if name == "runners":
        return runners(subject)
    if subject.several and name in ("step", "speed"):
        return several.step(subject) if name == "step" else several.speed(subject)
    return EXPERIMENTS[name][0](subject if y is None or name == "declared" else subject.with_targets(y))
