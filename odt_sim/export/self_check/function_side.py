"""TensorFlow's functions as a side of the check: the signatures of a SavedModel, or of a file with Flex ops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.inlining import inlined
from odt_sim.export.lowering import Trace
from odt_sim.export.self_check.side import Array, CannotRun, Part, moved
from odt_sim.export.self_check.traces import runnable
from odt_sim.export.signatures import Program, Variable


@dataclass(frozen=True)
class FunctionSide:
    """The traced functions of a program.

    Attributes:
        program: The functions, and the variables that they use.
        named: The weights and slots by their names in the file.
        before: The values of all variables before the check.
    """

    program: Program
    named: dict[str, Variable]
    before: list[tuple[Variable, tf.Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        """Keep the values of all variables."""
        variables = [*self.program.weights, *self.program.states]
        object.__setattr__(self, "before", [(v, tf.convert_to_tensor(v)) for v in variables])

    def reset(self, random: np.random.Generator | None = None) -> None:
        """Set all variables to their values before the check; see `Reference`."""
        weights = set(map(id, self.program.weights))
        for variable, value in self.before:
            variable.assign(moved(value.numpy(), random) if random and id(variable) in weights else value)

    def states(self) -> dict[str, Any]:
        """Return the weights and slots; see `Side`."""
        return {name: tf.convert_to_tensor(variable) for name, variable in self.named.items()}

    def rounding(self, name: str) -> None:
        """Return None, because functions do not return gradients; see `Reference`."""

    def run(self, part: Part) -> dict[str, Array]:
        """Run a function; see `Side`."""
        trace = inlined(self.program.traces[part.signature])
        try:
            return runnable(trace, trace.concrete.structured_outputs)({**part.inputs, **part.further})
        except tf.errors.OpError as error:
            raise CannotRun(error.message) from error


def parts_of(
    traces: Mapping[str, Trace], trains: Mapping[str, bool], rows: int, number: int, positive: bool
) -> list[Part]:
    """Return a call of each signature, those that train last, on random rows.

    Args:
        traces: The signatures.
        trains: Whether each signature to call changes variables.
        rows: The rows of a batch if a signature leaves them open.
        number: The number of the draw.
        positive: Whether floats are between 0 and 1 and integers at least 1.
    """
    random = np.random.default_rng(number)
    ordered = sorted(trains, key=lambda key: trains[key])
    return [_part(key, list(traces[key].arguments.values()), random, rows, positive, trains[key]) for key in ordered]


def _part(
    key: str, specs: Sequence[tf.TensorSpec], random: np.random.Generator, rows: int, positive: bool, trains: bool
) -> Part:
    inputs = {spec.name: _drawn(spec, random, rows, positive) for spec in specs if spec.shape.rank}
    further = {spec.name: np.asarray(0.05, spec.dtype.as_numpy_dtype) for spec in specs if not spec.shape.rank}
    size = len(next(iter(inputs.values()), [0]))
    return Part(key, f"`{key}` on {size} rows", inputs, further, size, trains=trains)


def _drawn(spec: tf.TensorSpec, random: np.random.Generator, rows: int, positive: bool) -> Array:
    shape = [rows if size is None else size for size in spec.shape]
    if not spec.dtype.is_floating:
        return random.integers(int(positive), 2, shape)
    values = random.uniform(0.05, 0.95, shape) if positive or spec.name != "x" else random.normal(size=shape)
    return values.astype(np.float32)
