"""Quadratic programs over the simplex: mixture weights that minimize a quadratic form."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TOLERANCE = 1e-12
"""The search ends if no weight improves the form by more than this, relative to its largest coefficient."""


def smallest_on_simplex(form: Array) -> Array:
    """Return the weights a that minimize `a^T Q a` with `a >= 0` and `sum a = 1`, `[n]`.

    The method of Wolfe (1976, Finding the nearest point in a polytope) reaches the exact minimum, up to rounding, in
    finitely many steps. Starting from one positive weight, it adds the weight that improves the form most, minimizes
    under the constraint that the sum is 1, and drops weights that would become negative.

    Args:
        form: Q, `[n, n]`, symmetric and positive semidefinite.
    """
    weights = np.zeros(len(form))
    weights[form.diagonal().argmin()] = 1.0
    slack = TOLERANCE * np.abs(form).max()
    for _ in range(3 * len(form)):  # ends earlier, except for rounding
        gains = weights @ form @ weights - form @ weights
        gains[weights > 0] = 0
        if gains.max() <= slack:
            break
        weights = _without_negative(form, weights, [*np.flatnonzero(weights), gains.argmax()])
    return weights


def _without_negative(form: Array, weights: Array, support: list[np.intp]) -> Array:
    """Return the minimum over the weights of a support, which shrinks until no weight is negative."""
    while True:
        target = np.zeros(len(form))
        target[support] = _on_plane(form[np.ix_(support, support)])
        if target.min() >= 0:
            return target
        falling = [i for i in support if target[i] < 0]
        steps = weights[falling] / (weights[falling] - target[falling])
        first = falling[steps.argmin()]
        weights = weights + steps.min() * (target - weights)
        support = [i for i in support if i != first and weights[i] > 0]
        weights[first] = 0


def _on_plane(form: Array) -> Array:
    """Return the weights, of any sign and with the sum 1, that minimize a form."""
    size = len(form)
    system = np.ones((size + 1, size + 1))
    system[:size, :size], system[size, size] = form, 0
    return np.asarray(np.linalg.lstsq(system, np.eye(size + 1)[size], rcond=None)[0][:size])
