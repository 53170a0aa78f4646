"""Low-rank compression of weights by singular value decomposition, for strategies that compress their messages.

A parameter of two or more axes is reshaped to a matrix whose columns are the last axis. If its factors U, s and V have
fewer numbers than the matrix, they travel instead.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.model.tensors import Tensors, array_of
from odt_sim.model.weights import Layout, Weights

VALUES, RANKS = "values", "ranks"
"""Names of the parameters or factors, `[numbers]` float32, and the ranks, `[parameters]` int32; 0 is uncompressed."""


def compressed(weights: Weights, energy: float) -> Tensors:
    """Compress weights to the fewest singular values that keep a share of each matrix's energy.

    Args:
        weights: The weights; matrices with non-finite numbers or only zeros stay uncompressed.
        energy: Minimum share of the sum of squared singular values to keep, above 0 to 1.
    """
    values: list[NDArray[Any]] = [np.zeros(0)]
    ranks = []
    for tensor in weights.tensors():
        factors = _factors(tensor, energy)
        ranks.append(len(factors[1]) if factors else 0)
        values += [factor.ravel() for factor in factors] or [tensor.ravel()]
    return {VALUES: np.concatenate(values).astype(np.float32), RANKS: np.array(ranks, np.int32)}


def _factors(tensor: NDArray[np.float32], energy: float) -> tuple[NDArray[np.float64], ...]:
    """Return U `[rows, k]`, s `[k]` and V `[k, columns]`; an empty tuple if the matrix itself is smaller."""
    if tensor.ndim < 2 or not np.isfinite(tensor).all() or not tensor.any():
        return ()
    matrix = _matrix(tensor).astype(np.float64)
    if wide := matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    # An eigendecomposition of the smaller product takes a third of the time of `svd`. Squaring loses half of the
    # digits of small singular values, but `matrix @ v`, which equals `u * s`, keeps full precision in the product of
    # the factors.
    squares, v = np.linalg.eigh(matrix.T @ matrix)
    squares, v = np.maximum(squares[::-1], 0), v[:, ::-1]
    kept = np.cumsum(squares)
    rank = int(np.searchsorted(kept, energy * kept[-1])) + 1
    if rank * (sum(matrix.shape) + 1) >= tensor.size:
        return ()
    v = v[:, :rank]
    scaled = matrix @ v
    s = np.sqrt((scaled**2).sum(axis=0))
    u = scaled / np.where(s > 0, s, 1)
    return (v, s, u.T) if wide else (u, s, v.T)


def restored(tensors: Tensors, layout: Layout) -> Weights:
    """Return the weights that `compressed` approximated.

    Args:
        tensors: The result of `compressed`.
        layout: The parameters of the weights.
    """
    values, ranks = array_of(tensors[VALUES]), array_of(tensors[RANKS])
    whole, start = [], 0
    for parameter, rank in zip(layout.parameters, ranks.tolist(), strict=True):
        columns = parameter.shape[-1] if parameter.shape else 1
        rows = prod(parameter.shape) // max(columns, 1)
        sizes = (rows * rank, rank, rank * columns) if rank else (rows * columns,)
        ends = start + np.cumsum(sizes)
        factors = np.split(values[start : ends[-1]], ends[:-1] - start)
        start = int(ends[-1])
        if rank:
            u, s, v = factors
            factors = [(u.reshape(rows, rank) * s) @ v.reshape(rank, columns)]
        whole.append(factors[0].reshape(parameter.shape))
    return Weights.from_tensors(layout, whole)


def _matrix(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    return tensor.reshape(-1, tensor.shape[-1])
