"""Weights as low-rank factors, against known singular values."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from odt_sim import Weights
from odt_sim.model.manifest import Parameter
from odt_sim.model.weights import Layout
from odt_sim.strategies.fedkd import compressed, restored


def weights(**arrays: Any) -> Weights:
    tensors = [np.asarray(array, np.float32) for array in arrays.values()]
    layout = Layout(tuple(Parameter(name, array.shape) for name, array in zip(arrays, tensors, strict=True)))
    return Weights.from_tensors(layout, tensors)


def rotated(singular: list[float], rows: int, columns: int) -> Any:
    """Return a matrix with given singular values."""
    random = np.random.default_rng(0)
    u, v = (np.linalg.qr(random.normal(size=(size, len(singular))))[0] for size in (rows, columns))
    return (u * singular) @ v.T


@pytest.mark.parametrize(("energy", "rank"), [(0.5, 1), (0.63, 1), (0.65, 2), (0.99, 2), (0.999, 3), (0.9999, 3)])
def test_keeps_the_fewest_singular_values_that_hold_the_energy(energy: float, rank: int) -> None:
    """The squares of 8, 6 and 0.5 are 64, 36 and 0.25: shares of 0.638, 0.998 and 1."""
    before = weights(kernel=rotated([8, 6, 0.5], 20, 10), bias=[1, 2])
    sent = compressed(before, energy)
    assert sent["ranks"].tolist() == [rank, 0]
    assert sent["values"].size == rank * (20 + 1 + 10) + 2
    after = restored(sent, before.layout)
    assert after["bias"].tolist() == [1, 2]
    left = np.linalg.svd(before["kernel"] - after["kernel"])[1]
    assert_allclose(left[: 3 - rank], [8, 6, 0.5][rank:], atol=1e-5)
    assert_allclose(left[3 - rank :], 0, atol=1e-5)


@pytest.mark.parametrize(
    "kernel", [rotated([3, 2], 2, 3), np.zeros((20, 10)), np.full((20, 10), np.nan)], ids=["small", "zero", "nan"]
)
def test_matrices_that_gain_nothing_travel_whole(kernel: Any) -> None:
    before = weights(kernel=kernel)
    sent = compressed(before, 0.95)
    assert sent["ranks"].tolist() == [0]
    np.testing.assert_array_equal(restored(sent, before.layout).vector, before.vector)


def test_kernel_of_a_convolution_is_a_matrix_of_its_filters() -> None:
    before = weights(kernel=rotated([5, 1e-3], 27, 8).reshape(3, 3, 3, 8), scale=np.float32(2), rest=np.zeros((0, 4)))
    sent = compressed(before, 0.9)
    assert sent["ranks"].tolist() == [1, 0, 0]
    assert_allclose(restored(sent, before.layout).vector, before.vector, atol=1e-3)
