"""A file under examination: its engine, its signatures by role, and examples that fit it."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from odt_sim.data.store.columns import Array
from odt_sim.device.engines import Engine, RuntimeChoice
from odt_sim.errors import ModelError
from odt_sim.model.contract.names import parts
from odt_sim.model.reading.flatbuffer import Signature, TensorInfo

Roles = Mapping[str, Mapping[str, str]]
"""By role (`train`, `infer`, `embed`, `parameters`, `restore`), the signature's `name`, and its names for `x`, `y`,
`loss` and `output`."""

ROWS = 8
"""The rows of a batch where any number is accepted."""

LENGTH = 8
"""The size of any other axis that is not fixed, such as the words of a text."""

RATE = np.float32(0.01)
"""The value of an input that is a single number, such as a learning rate."""

SECONDS, MOST_CALLS = 0.4, 200
"""The limits of the time for which a call is timed, after the first call."""

Inputs = dict[str, Array]


@dataclass(frozen=True)
class Subject:
    """The file that an experiment runs.

    Attributes:
        content: The file.
        where: Its name.
        signatures: Its signatures by name.
        roles: The signatures by role.
        runtime: The runtime that runs them.
    """

    content: bytes
    where: str
    signatures: Mapping[str, Signature]
    roles: Roles
    runtime: RuntimeChoice

    def start(self) -> Engine:
        """Return a fresh engine."""
        return self.runtime(self.content, self.where)

    def name(self, role: str) -> str:
        """Return the name of a role's signature."""
        return self.roles[role]["name"]

    def input(self, role: str, key: str) -> TensorInfo:
        """Return the input of a role's signature that plays the part `x` or `y`."""
        return self.signatures[self.name(role)].inputs[self.roles[role].get(key, key)]

    @property
    def several(self) -> bool:
        """Whether the step takes several inputs or targets."""
        inputs = self.signatures[self.name("train")].inputs if "train" in self.roles else {}
        return len(parts(inputs, "x")) > 1 or len(parts(inputs, "y")) > 1

    @cached_property
    def rows(self) -> int:
        """The rows of a batch of the step."""
        return self.input("train", "x").shape[0] if self.static else ROWS

    @property
    def static(self) -> bool:
        """Whether the step takes a fixed number of rows."""
        shape = self.input("train", "x").shape
        return bool(shape) and shape[0] > 0

    def trained_on(self, engine: Engine, x: Array) -> Array:
        """Return the step's input for examples: the examples, or their embeddings."""
        return self.infer(engine, x, "embed") if "embed" in self.roles else x

    def infer(self, engine: Engine, x: Array, role: str = "infer") -> Array:
        """Return the outputs for any number of rows, even if the signature takes a fixed number."""
        declared, output = self.input(role, "x"), self.roles[role].get("output")
        size = declared.shape[0] if declared.shape and declared.shape[0] > 0 else len(x)
        others = {name: value for name, value in self._others(role).items() if name != declared.name}
        parts = []
        for first in range(0, len(x), size):
            rows = x[first : first + size]
            filled = np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])
            outputs = engine.call(self.name(role), **{declared.name: filled}, **others)
            main = output or next((name for name in ("logits", "output") if name in outputs), None)
            result = outputs[main] if main in outputs else next(iter(outputs.values()))
            parts.append(result[: len(rows)])
        return np.concatenate(parts)

    def train(self, engine: Engine, x: Array, y: Array) -> float:
        """Run a step and return its loss."""
        names_of = self.roles["train"]
        names = {names_of.get("x", "x"): x, names_of.get("y", "y"): y}
        outputs = engine.call(self.name("train"), **{**self._others("train", len(x)), **names})
        loss = outputs.get(names_of.get("loss", "loss"))
        return float(np.asarray(next(iter(outputs.values())) if loss is None else loss).reshape(-1)[0])

    def _others(self, role: str, rows: int = ROWS) -> Inputs:
        """Return the inputs other than x and y: weights of rows are 1, `mu` is 0, and single numbers are small."""
        examples = {self.roles[role].get(key, key) for key in ("x", "y")}
        values: Inputs = {}
        for name, tensor in self.signatures[self.name(role)].inputs.items():
            if tensor.name not in examples:
                single = not tensor.shape or tensor.shape == (1,)
                shape = tensor.shape if single else _shape(tensor, rows)
                values[name] = np.full(shape, (0 if name == "mu" else RATE) if single else 1, tensor.dtype)
        return values

    def x(self, random: np.random.Generator, rows: int | None = None) -> Array:
        """Return random examples for inference; integers are 0 or 1, which every vocabulary contains."""
        declared = self.input("infer", "x")
        shape = _shape(declared, rows or self.rows)
        if np.dtype(declared.dtype).kind in "iub":
            return random.integers(0, 2, shape).astype(declared.dtype)
        return random.normal(size=shape).astype(declared.dtype)

    def y(self, random: np.random.Generator, outputs: Array) -> Array:
        """Return random targets of the declared form for the outputs of inference."""
        return targets(self.input("train", "y"), random, outputs.shape, self.rows)

    def with_targets(self, shape: tuple[int, ...]) -> "Subject":
        """Return the subject with another declared shape of the targets."""
        name, y = self.name("train"), self.input("train", "y")
        signature = self.signatures[name]
        inputs = {**signature.inputs, y.name: replace(y, shape=shape)}
        return replace(self, signatures={**self.signatures, name: replace(signature, inputs=inputs)})

    def parameters(self, engine: Engine) -> Inputs:
        """Return the outputs of the reading signature; empty if there is none."""
        return engine.call(self.name("parameters")) if "parameters" in self.roles else {}

    def batches(self, random: np.random.Generator, engine: Engine, count: int) -> Iterator[tuple[Array, Array]]:
        """Yield batches with different scales, so that their losses differ."""
        for i in range(count):
            x = self.x(random)
            if x.dtype.kind == "f":
                x = (x * (1.0, 3.0, 0.5, 2.0)[i % 4]).astype(x.dtype)
            yield x, self.y(random, self.infer(engine, x))

    def batch(self, engine: Engine) -> tuple[Array, Array]:
        """Return the step's input for a batch of random examples, and targets."""
        random = np.random.default_rng(4)
        x = self.x(random)
        return self.trained_on(engine, x), self.y(random, self.infer(engine, x))


def targets(y: TensorInfo, random: np.random.Generator, outputs: tuple[int, ...], rows: int) -> Array:
    """Return random targets: one-hot, class numbers, or 0 and 1 for a single output.

    Args:
        y: The input of the targets.
        random: The generator.
        outputs: The shape of the outputs of inference.
        rows: The rows of the batch.
    """
    classes = outputs[-1] if len(outputs) > 1 else 1
    shape = [*_shape(y, rows)]
    one_hot = len(shape) == len(outputs) and classes > 1 and y.shape[-1] in (classes, -1)
    if one_hot:
        labels = random.integers(0, classes, outputs[:-1])
        return np.eye(classes, dtype=y.dtype)[labels]
    if len(shape) > 1 and len(outputs) > 1 and y.shape[-1] < 0:
        shape[-1] = 1
    middle = list(outputs[1 : len(shape)])
    shape[1 : 1 + len(middle)] = [m if d < 0 else s for s, m, d in zip(shape[1:], middle, y.shape[1:], strict=False)]
    return random.integers(0, max(classes, 2), shape).astype(y.dtype)


def zeros(tensor: TensorInfo, rows: int = ROWS) -> Array:
    """Return zeros of a declared shape."""
    if tensor.dtype in ("string", "resource", "variant"):
        raise ModelError(f"input {tensor.name!r} is {tensor.dtype}")
    return np.zeros(_shape(tensor, rows), tensor.dtype)


def _shape(tensor: TensorInfo, rows: int) -> tuple[int, ...]:
    first = [size if size >= 0 else rows for size in tensor.shape[:1]]
    return (*first, *(size if size >= 0 else LENGTH for size in tensor.shape[1:]))


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
