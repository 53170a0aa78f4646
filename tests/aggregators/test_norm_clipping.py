"""Norm clipping bounds the norm, keeps the direction, and leaves short updates unchanged."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from odt_sim.aggregators import NormClipping
from odt_sim.aggregators.norm_clipping import norm
from odt_sim.errors import ConfigurationError
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.weights import Layout, Weights

LAYOUT = Layout((Parameter("w", (2,), "float32", "trainable", "body"),))
TENSORS = st.fixed_dictionaries(
    {name: arrays(np.float32, 3, elements=st.floats(-(2.0**127), 2.0**127, width=32)) for name in ("a", "b")}
)


def test_known_answer() -> None:
    """From norm 5 over both tensors to 1."""
    tensors = {"weights": Weights(LAYOUT, np.array([3, 0], np.float32)), "control": np.array([[4]], np.float32)}
    limited = NormClipping(1.0).limit(tensors)
    np.testing.assert_allclose(limited["weights"].vector, [0.6, 0], rtol=1e-6)
    np.testing.assert_allclose(limited["control"], [[0.8]], rtol=1e-6)
    assert (limited["weights"].layout, limited["control"].dtype) == (LAYOUT, np.float32)
    assert NormClipping(5.0).limit(tensors) is tensors


def test_tensor_without_axes_stays_an_array() -> None:
    limited = NormClipping(1.0).limit({"loss": np.array(4, np.float32)})
    assert isinstance(limited["loss"], np.ndarray)
    assert (limited["loss"].dtype, limited["loss"].tolist()) == (np.float32, 1.0)


@given(tensors=TENSORS, bound=st.floats(1e-3, 1e9))
def test_bound_holds_and_direction_is_kept(tensors: Any, bound: float) -> None:
    before, limited = norm(tensors), NormClipping(bound).limit(tensors)
    assert norm(limited) <= bound * (1 + 1e-6)
    if before <= bound:
        assert limited is tensors
    else:
        for name, tensor in tensors.items():
            np.testing.assert_allclose(
                limited[name], tensor.astype(np.float64) * (bound / before), rtol=1e-6, atol=1e-40
            )


@pytest.mark.parametrize("bound", [0, -1.0, float("inf"), None])
def test_max_norm_out_of_range(bound: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"aggregator\.max_norm: expected a number above 0, found"):
        NormClipping(bound)
