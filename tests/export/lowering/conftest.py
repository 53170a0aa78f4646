"""Fixtures that run a function in TensorFlow and in its lowered form."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Function = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def both_ways() -> Callable[..., tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]]:
    """Return a function that returns the outputs of `function(*arrays)` in TensorFlow and in its lowered graph."""
    import tensorflow as tf

    from odt_sim.export.lowering import Trace, emit
    from odt_sim.export.trace.inlining import inlined

    def run(function: Function, **arrays: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        specs = [tf.TensorSpec(a.shape, a.dtype, name=name) for name, a in arrays.items()]
        concrete = tf.function(function, input_signature=specs, autograph=False).get_concrete_function()
        trace = inlined(Trace(concrete, layers=()))
        operations = trace.live_operations(weights=())

        def lowered(*values: Any) -> dict[str, Any]:
            return emit(trace, operations, dict(zip(arrays, values, strict=True)), {})

        again = tf.function(lowered, input_signature=specs, autograph=False)
        outputs = [call(*map(tf.constant, arrays.values())) for call in (concrete, again)]
        plain = [{name: np.asarray(value) for name, value in output.items()} for output in outputs]
        return plain[0], plain[1]

    return run


@pytest.fixture(scope="session")
def same(both_ways: Any) -> Callable[..., None]:
    """Return a function that asserts that both outputs are equal."""

    def check(function: Function, atol: float = 2e-6, **arrays: NDArray[Any]) -> None:
        expected, found = both_ways(function, **arrays)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=atol, err_msg=name)

    return check
