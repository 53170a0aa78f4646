"""TensorFlow's functions as a side of the check: the signatures of a SavedModel, or of a file with Flex ops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.emit.signatures import Program, Variable
from odt_sim.export.keras.random_batches import drawn
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.creation import copied
from odt_sim.export.self_check.side import Array, Arrays, CannotRun, Part, Snapshot
from odt_sim.export.trace.inlining import inlined
from odt_sim.export.trace.tracing import named


def run_trace(trace: Trace, inputs: Arrays, outputs: Mapping[str, tf.Tensor]) -> dict[str, Array]:
    """Return the values of some of a trace's tensors, by name, reading and writing variables in the order of its ops.

    A trace itself does not order reads and writes.
    """
    graph = trace.concrete.graph
    captured = {placeholder.op.name: outer for outer, placeholder in graph.captures}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        tensors = dict[str, tf.Tensor]()
        for op in graph.get_operations():
            if op.type == "Placeholder":
                outer = captured.get(op.name)
                copies = [values[trace.arguments[op.name].name] if outer is None else outer]
            else:
                copies = copied(op, [tensors[t.name] for t in op.inputs])
            tensors.update(zip((t.name for t in op.outputs), copies, strict=True))
        return {name: tensors[tensor.name] for name, tensor in outputs.items()}

    constants = {spec.name: tf.constant(inputs[spec.name], spec.dtype) for spec in trace.arguments.values()}
    concrete = named(function, [tf.TensorSpec(value.shape, value.dtype, name) for name, value in constants.items()])
    return {name: np.asarray(value) for name, value in concrete(**constants).items()}


@dataclass(frozen=True)
class FunctionSide:
    """The traced functions of a program.

    Attributes:
        program: The functions, and the variables that they use.
        named: The weights and slots by their names in the file.
    """

    program: Program
    named: dict[str, Variable]

    @cached_property
    def before(self) -> Snapshot:
        """The values of all variables before the check, at the first `reset`."""
        return Snapshot([*self.program.weights, *self.program.states], self.program.weights)

    def reset(self, random: np.random.Generator | None = None) -> None:
        """Set all variables to their values before the check; see `Reference`."""
        self.before.restore(random)

    def states(self) -> dict[str, Any]:
        """Return the weights and slots; see `Side`."""
        return {name: tf.convert_to_tensor(variable) for name, variable in self.named.items()}

    def rounding(self) -> dict[str, Array]:
        """Return nothing, because functions do not return gradients; see `Reference`."""
        return {}

    def run(self, part: Part) -> dict[str, Array]:
        """Run a function; see `Side`."""
        trace = inlined(self.program.traces[part.signature])
        try:
            return run_trace(trace, {**part.inputs, **part.further}, trace.concrete.structured_outputs)
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
    inputs = {
        spec.name: drawn(spec, random, rows, positive=positive or spec.name != "x") for spec in specs if spec.shape.rank
    }
    further = {spec.name: np.asarray(0.05, spec.dtype.as_numpy_dtype) for spec in specs if not spec.shape.rank}
    size = len(next(iter(inputs.values()), [0]))
    return Part(key, f"`{key}` on {size} rows", inputs, further, size, trains=trains)
