"""Functions of `keras.ops` and of TensorFlow: values and gradients on LiteRT equal those of TensorFlow."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import keras_calls
import numpy as np
import pytest
import tensorflow as tf
import tf_calls
from ai_edge_litert.interpreter import Interpreter
from keras_calls import KerasCall
from numpy.typing import NDArray
from single_ops import OPS

from odt_sim.errors import ExportError
from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.signatures import Program, emit_signatures
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.registry import LOWERINGS
from odt_sim.export.trace.inlining import inlined

FAMILIES = {**keras_calls.FAMILIES, **tf_calls.FAMILIES}
FAST = {name: call for family in FAMILIES.values() for name, call in family.items() if name in keras_calls.FAST}
Outputs = dict[str, NDArray[Any]]


def factors(shape: tf.TensorShape) -> Any:
    """Return the factors of an output's elements before summation."""
    return np.cos(np.arange(shape.num_elements() or 1, dtype=np.float32)).reshape(shape if shape.num_elements() else ())


def differentiated(call: KerasCall, given: list[tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the outputs of a call, and their gradients with respect to each float input."""
    watched = [x for x in given if x.dtype == tf.float32]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = [y for y in tf.nest.flatten(call.function(*given)) if tf.is_tensor(y)]
        parts = [tf.reduce_sum(y * factors(y.shape)) for y in outputs if y.dtype == tf.float32]
    gradients = tape.gradient(parts, watched) if parts else []
    named = {f"y{i}": y for i, y in enumerate(outputs)}
    return named | {f"d{i}": tf.convert_to_tensor(g) for i, g in enumerate(gradients) if g is not None}


@dataclass(frozen=True)
class Packed:
    """Many calls combined into one function.

    Attributes:
        calls: The calls by name.
    """

    calls: dict[str, KerasCall]

    @cached_property
    def inputs(self) -> dict[str, NDArray[Any]]:
        return {
            f"c{i}_x{j}": np.asarray(x) for i, call in enumerate(self.calls.values()) for j, x in enumerate(call.inputs)
        }

    @cached_property
    def trace(self) -> Trace:
        def function(*values: tf.Tensor) -> dict[str, tf.Tensor]:
            given, outputs = dict(zip(self.inputs, values, strict=True)), {}
            for i, call in enumerate(self.calls.values()):
                own = differentiated(call, [given[f"c{i}_x{j}"] for j in range(len(call.inputs))])
                outputs |= {f"c{i}_{key}": value for key, value in own.items()}
            return outputs

        specs = [tf.TensorSpec(x.shape, x.dtype, name) for name, x in self.inputs.items()]
        return Trace(tf.function(function, input_signature=specs, autograph=False).get_concrete_function(), layers=())

    @cached_property
    def inlined(self) -> Trace:
        """The trace with inlined function calls."""
        return inlined(self.trace)

    @cached_property
    def results(self) -> tuple[Outputs, Outputs]:
        """The outputs in TensorFlow and in LiteRT."""
        content = convert(emit_signatures(Program({"calls": self.inlined}, [])))
        runner = Interpreter(model_content=content, num_threads=1).get_signature_runner("calls")
        taken = {name: details["dtype"] for name, details in runner.get_input_details().items()}
        expected = self.trace.concrete(*map(tf.constant, self.inputs.values()))
        found = runner(**{name: np.asarray(self.inputs[name], dtype) for name, dtype in taken.items()})
        return {name: value.numpy() for name, value in expected.items()}, found

    def check(self, name: str) -> None:
        expected, found = self.results
        prefix, tolerance = f"c{[*self.calls].index(name)}_", self.calls[name].tolerance
        own = [key for key in expected if key.startswith(prefix)]
        assert own
        for key in own:
            np.testing.assert_allclose(found[key], expected[key], rtol=tolerance, atol=tolerance, err_msg=key)


PACKED = {title: Packed(calls) for title, calls in {"fast": FAST, **FAMILIES}.items()}


@pytest.mark.parametrize("name", FAST)
def test_common_function_equals_tensorflow(name: str) -> None:
    PACKED["fast"].check(name)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), [(title, name) for title, calls in FAMILIES.items() for name in calls])
def test_function_equals_tensorflow(family: str, name: str) -> None:
    PACKED[family].check(name)


@pytest.mark.slow
def test_every_lowering_is_covered() -> None:
    graphs = [PACKED[title].inlined.concrete.graph for title in FAMILIES]
    covered = {op.type for graph in graphs for op in graph.get_operations()}
    assert set(LOWERINGS) - covered - set(OPS) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", keras_calls.REFUSED)
def test_function_is_refused(name: str) -> None:
    call, reason = keras_calls.REFUSED[name]
    with pytest.raises(ExportError, match=reason) as error:
        emit_signatures(Program({"calls": Packed({name: call}).inlined}, []))
    assert "\n" not in str(error.value)
