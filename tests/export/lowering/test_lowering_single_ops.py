"""Every lowering on its own: LiteRT against TensorFlow's op, over a grid of shapes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray
from single_ops import OPS, Call

from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.signatures import Program, emit_signatures
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.control_flow import bodies
from odt_sim.export.lowering.registry import LOWERINGS

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Grid:
    """The calls of one op type as one function, traced and run by TensorFlow.

    Attributes:
        calls: The calls by name.
        trace: The function with the outputs of all calls.
    """

    calls: Mapping[str, Call]
    trace: Trace

    def runs(self) -> list[dict[str, NDArray[Any]]]:
        """Return the inputs of each run, by the names of the function's arguments."""
        return [inputs_of(self.calls, run) for run in range(1 + max(len(call.others) for call in self.calls.values()))]

    def expected(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        outputs = self.trace.concrete(*map(tf.constant, inputs.values()))
        return {name: value.numpy() for name, value in outputs.items()}


def inputs_of(calls: Mapping[str, Call], run: int) -> dict[str, NDArray[Any]]:
    return {f"{name}_x{i}": x for name, call in calls.items() for i, x in enumerate(call.given(run))}


def grid_of(op_type: str) -> Grid:
    calls = {f"call_{i}": call for i, call in enumerate(OPS[op_type]())}
    inputs = inputs_of(calls, 0)

    def function(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        given, outputs = dict(zip(inputs, values, strict=True)), {}
        for name, call in calls.items():
            result = call.function(*(given[f"{name}_x{i}"] for i in range(len(call.inputs))))
            outputs |= {f"{name}_y{i}": y for i, y in enumerate(result if isinstance(result, list) else [result])}
        return outputs

    specs = [tf.TensorSpec(x.shape, x.dtype, name) for name, x in inputs.items()]
    concrete = tf.function(function, input_signature=specs, autograph=False).get_concrete_function()
    return Grid(calls, Trace(concrete, layers=()))


def types_in(graph: tf.Graph) -> set[str]:
    operations = graph.get_operations()
    return {op.type for op in operations}.union(*(types_in(body) for op in operations for body in bodies(op)))


@pytest.fixture(scope="module")
def grids() -> dict[str, Grid]:
    return {op_type: grid_of(op_type) for op_type in OPS}


@pytest.fixture(scope="module")
def lowered(grids: dict[str, Grid]) -> Interpreter:
    """All grids in one file, a signature each."""
    variables = [v for grid in grids.values() for v in grid.trace.concrete.graph.variables]
    program = Program({op_type: grid.trace for op_type, grid in grids.items()}, variables)
    return Interpreter(model_content=convert(emit_signatures(program)), num_threads=1)


@pytest.mark.parametrize("op_type", sorted(OPS))
def test_lowering_equals_tensorflow(op_type: str, grids: dict[str, Grid], lowered: Interpreter) -> None:
    assert op_type in LOWERINGS
    grid = grids[op_type]
    assert op_type in types_in(grid.trace.concrete.graph)
    runner = lowered.get_signature_runner(op_type)
    taken = {name: details["dtype"] for name, details in runner.get_input_details().items()}
    for inputs in grid.runs():
        found, expected = runner(**{name: x.astype(taken[name]) for name, x in inputs.items()}), grid.expected(inputs)
        assert set(found) == set(expected)
        for name, value in expected.items():
            call = grid.calls[name.rpartition("_")[0]]
            assert found[name].dtype == (value.dtype if value.dtype in (np.float32, np.uint8) else np.int32)
            np.testing.assert_allclose(found[name], value, rtol=call.tolerance, atol=call.tolerance, err_msg=name)
