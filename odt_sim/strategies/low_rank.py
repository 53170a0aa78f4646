"""Weights as products of small matrices, by singular values: used where a strategy compresses what travels.

A parameter of two or more axes is a matrix of its last axis by all others. Its factors U, s and V travel in its place where
they have fewer numbers.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.model.tensors import Tensors, array_of
from odt_sim.model.weights import Layout, Weights

VALUES, RANKS = "values", "ranks"
"""Names of `[numbers]` float32, all parameters or their factors, and `[parameters]` int32, the ranks; 0 for a whole one."""


def compressed(weights: Weights, energy: float) -> Tensors:
    """Return weights with as few singular values as hold a share of each matrix's energy.

    Args:
        weights: The weights; matrices that are not finite or are all zero stay whole.
        energy: The least share of the sum of squared singular values to keep, above 0 to 1.
    """
    values: list[NDArray[Any]] = [np.zeros(0)]
    ranks = []
    for tensor in weights.tensors():
        factors = _factors(tensor, energy)
        ranks.append(len(factors[1]) if factors else 0)
        values += [factor.ravel() for factor in factors] or [tensor.ravel()]
    return {VALUES: np.concatenate(values).astype(np.float32), RANKS: np.array(ranks, np.int32)}


def _factors(tensor: NDArray[np.float32], energy: float) -> tuple[NDArray[np.float64], ...]:
    """Return U `[rows, k]`, s `[k]` and V `[k, columns]`; nothing where the whole matrix is smaller."""
    if tensor.ndim < 2 or not np.isfinite(tensor).all() or not tensor.any():
        return ()
    matrix = _matrix(tensor).astype(np.float64)
    if wide := matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    # The eigenvectors of the smaller product take a third of the time of `svd`. Squares lose half of the digits of small
    # singular values, but `matrix @ v`, which is `u * s`, keeps all digits of the product of the factors.
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
    """Return the weights of `compressed`, up to what was left out.

    Args:
        tensors: What `compressed` returned.
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
