"""Quadratic programs over the simplex, against known answers and the conditions of an optimum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as draw
from numpy.testing import assert_allclose

from odt_sim.strategies.fedpac import smallest_on_simplex


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ([[3.0]], [1]),
        ([[0, 0], [0, 1]], [1, 0]),
        ([[1, 0], [0, 3]], [0.75, 0.25]),  # inversely to independent variances
        ([[1, 0, 0], [0, 2, 0], [0, 0, 2]], [0.5, 0.25, 0.25]),
        ([[1, 2], [2, 5]], [1, 0]),  # the minimum over the plane has a negative weight
        ([[2, -1, 0], [-1, 2, 0], [0, 0, 100]], [50, 50, 0.5]),  # half each is 0.5, against 100
    ],
)
def test_known_minimum(form: list[list[float]], expected: list[float]) -> None:
    weights = smallest_on_simplex(np.array(form, float))
    assert_allclose(weights, np.array(expected) / np.sum(expected), atol=1e-12)


def test_nearest_point_of_a_triangle() -> None:
    """The corner (0, 2) is farther from the origin than a point of the opposite side."""
    corners = np.array([[1.0, 1], [-1, 1], [0, 2]])
    assert_allclose(smallest_on_simplex(corners @ corners.T), [0.5, 0.5, 0], atol=1e-12)


@given(size=draw.integers(1, 12), rank=draw.integers(0, 12), seed=draw.integers(0, 2**32))
def test_no_weight_improves_the_minimum(size: int, rank: int, seed: int) -> None:
    """The derivative is equal for all positive weights and not lower for the others, even without full rank."""
    points = np.random.default_rng(seed).normal(size=(size, rank)) + 1
    form = points @ points.T
    weights = smallest_on_simplex(form)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    derivative = form @ weights
    smallest = weights @ derivative
    scale = 1e-8 * (1 + np.abs(form).max())
    assert derivative.min() >= smallest - scale
    assert_allclose(derivative[weights > 1e-6], smallest, atol=scale)
