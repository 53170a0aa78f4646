"""FedPAC against plain numpy: aligned features, and heads mixed by the best of all supports."""

from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as draw
from numpy.testing import assert_allclose

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.shared_parts.fedpac import FedPAC, quadratic_form, smallest_on_simplex

RATE, EPOCHS, STRENGTH, HEAD_EPOCHS = 0.1, 2, 20.0, 3
HEAD, BODY = slice(35, 53), slice(0, 35)


def steps(twin: Any, w: Any, part: slice, device: int, round: int, epochs: range, pull: Any) -> Any:
    """Train a part on the mean of `losses + pull(embeddings, y)` of each batch, by numerical gradients."""

    def loss(w: Any, x: Any, y: Any) -> float:
        model = twin.at(w)
        return float((model.losses(x, y) + pull(model._hidden(x), y)).mean())

    small = 1e-6 * np.eye(len(w))[part]
    for x, y in twin.batches(device, round, epochs):
        w = w.copy()
        w[part] -= RATE * np.array([(loss(w + step, x, y) - loss(w - step, x, y)) / 2e-6 for step in small])
    return w


def described(twin: Any, w: Any, device: int) -> tuple[Any, float]:
    """Return H and V, by the sums over classes of the paper's code."""
    x, y = twin.part("train", device)
    h = twin.at(w)._hidden(x)
    means, variance = np.zeros((3, 5)), 0.0
    for c in range(3):
        if (y == c).any():
            share, of_class = (y == c).mean(), h[y == c]
            means[c] = share * of_class.mean(axis=0)
            variance += share * np.trace(of_class.T @ of_class / len(of_class))
            variance -= share**2 * (of_class.mean(axis=0) ** 2).sum()
    return means, variance / len(y)


def best_shares(means: Any, variances: Any, i: int) -> Any:
    """Return the shares of the smallest bound among the minima over each set of devices."""

    def bound(a: Any) -> float:
        return float((a**2 * variances).sum() + ((means[i] - np.tensordot(a, means, 1)) ** 2).sum())

    form = np.diag(variances) + np.einsum("jcd,kcd->jk", means[i] - means, means[i] - means)
    found = []
    for chosen in chain.from_iterable(combinations(range(3), n) for n in (1, 2, 3)):
        a = np.zeros(3)
        a[list(chosen)] = np.linalg.solve(form[np.ix_(chosen, chosen)], np.ones(len(chosen)))
        if (a >= 0).all():
            found.append(a / a.sum())
    return min(found, key=bound)


def test_agrees_with_numpy(small_twin: Any, termed: TrainableModel) -> None:
    twin, strategy = small_twin, FedPAC(STRENGTH, HEAD_EPOCHS)
    run = small_twin.run(strategy, termed, rounds=2)
    models, centroids, known = [twin.initial] * 3, np.zeros((3, 5)), np.zeros(3)

    def pull(h: Any, y: Any) -> Any:
        return STRENGTH * known[y] * ((h - centroids[y]) ** 2).mean(axis=-1)

    for round in (1, 2):
        means, variances = map(np.array, zip(*(described(twin, w, i) for i, w in enumerate(models)), strict=True))
        for i, w in enumerate(models):
            w = steps(twin, w, HEAD, i, round, range(HEAD_EPOCHS), lambda h, y: 0.0)
            models[i] = steps(twin, w, BODY, i, round, range(HEAD_EPOCHS, HEAD_EPOCHS + EPOCHS), pull)
        labels = np.concatenate([twin.part("train", i)[1] for i in range(3)])
        hidden = np.concatenate([twin.at(w)._hidden(twin.part("train", i)[0]) for i, w in enumerate(models)])
        known = np.isin(np.arange(3), labels).astype(float)
        centroids = np.array([hidden[labels == c].mean(axis=0) if known[c] else np.zeros(5) for c in range(3)])
        body, heads = twin.mean(models)[BODY], np.array([w[HEAD] for w in models])
        shares = [best_shares(means, variances, i) for i in range(3)]
        models = [np.concatenate([body, a @ heads]) for a in shares]
    assert max(a.max() for a in shares) < 0.99  # heads are mixed
    assert_allclose(run.broadcast["prototypes"], centroids, rtol=0, atol=1e-4)
    for i, w in enumerate(models):
        assert_allclose(run.deployed(i).vector, w, rtol=0, atol=5e-5)


def test_devices_with_equal_features_share_heads_by_their_variances() -> None:
    """Device 2 differs so much that it shares heads with no other device."""
    means, variances = np.array([[1.0, 0], [1, 0], [9, 0]]), np.array([1.0, 3, 1])
    assert quadratic_form(means, variances, 0).tolist() == [[1, 0, 0], [0, 3, 0], [0, 0, 65]]
    assert quadratic_form(means, variances, 2).tolist() == [[65, 64, 0], [64, 67, 0], [0, 0, 1]]


def test_what_travels(small_twin: Any, termed: TrainableModel) -> None:
    """Down: body, centroids and their counts, then the head too; up: also H and V. Unseen devices get no head."""
    run = small_twin.run(FedPAC(), termed, rounds=2, fleet=Fleet(unseen=1))
    body, head, centroids = 35, 18, 3 * 5 + 3
    up = body + head + centroids + 3 * 5 + 1
    floats = [(body, up), (body + centroids + head, up)]
    assert run.traffic == [(2 * 4 * d, 2 * 4 * u) for d, u in floats]
    unseen = run.unseen
    assert "head" not in run.strategy.message(run.commit.state, unseen)
    deployed, exported = run.deployed(unseen).vector, run.device(unseen).weights.vector
    np.testing.assert_array_equal(deployed[BODY], run.weights.vector)
    assert not np.array_equal(deployed[HEAD], exported[HEAD])


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
