"""pFedHN against plain numpy: vector-Jacobian products by finite differences of a network in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.clusters.pfedhn import Hypernetwork, PFedHN, drawn_embedding

RATE, EMBEDDING, HIDDEN, LAYERS = 1.0, 2, 3, 1


def generated(arrays: list[Any], e: Any) -> Any:
    """Return the weights of an embedding; `arrays` are kernels and biases in turn."""
    for i in range(0, len(arrays) - 2, 2):
        e = (np.maximum(e, 0) if i else e) @ arrays[i] + arrays[i + 1]
    return e @ arrays[-2] + arrays[-1]


def slope(values: Callable[[Any], float], at: Any) -> Any:
    steps = 1e-5 * np.eye(at.size).reshape(-1, *at.shape)
    return np.array([values(at + step) - values(at - step) for step in steps]).reshape(at.shape) / 2e-5


def ascents(arrays: list[Any], embeddings: list[Any], changes: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the gradients of the generated weights' products with the changes, for the network and each embedding."""

    def products(changed: Any, place: int) -> float:
        network = [*arrays[:place], changed, *arrays[place + 1 :]]
        return sum(float(generated(network, e) @ d) for e, d in zip(embeddings, changes, strict=True))

    of_network = [slope(lambda array, i=i: products(array, i), array) for i, array in enumerate(arrays)]
    of_embeddings = [
        slope(lambda e, d=d: float(generated(arrays, e) @ d), e) for e, d in zip(embeddings, changes, strict=True)
    ]
    return of_network, of_embeddings


def test_agrees_with_numpy(small_twin: Any) -> None:
    run = small_twin.run(PFedHN(EMBEDDING, HIDDEN, LAYERS, server_learning_rate=RATE), rounds=4)
    network = Hypernetwork.drawn(EMBEDDING, HIDDEN, LAYERS, small_twin.initial.astype(np.float32))
    arrays = [array.astype(np.float64) for layer in network.layers for array in layer]
    embeddings = [drawn_embedding(device, EMBEDDING).astype(np.float64) for device in range(3)]
    for round in range(1, run.rounds + 1):
        sent = [generated(arrays, e) for e in embeddings]
        changes = [small_twin.descend(w, device, round) - w for device, w in enumerate(sent)]
        steps, moves = ascents(arrays, embeddings, changes)
        arrays = [array + RATE / 3 * step for array, step in zip(arrays, steps, strict=True)]
        embeddings = [e + RATE * move for e, move in zip(embeddings, moves, strict=True)]
    models = [generated(arrays, e) for e in embeddings]
    assert np.abs(models[0] - models[1]).max() > 1e-2
    for device in range(3):
        assert_allclose(run.commit.state.private[f"embedding.{device}"], embeddings[device], rtol=0, atol=1e-5)
        assert_allclose(run.deployed(device).vector, models[device], rtol=0, atol=1e-5)
    assert_allclose(run.weights.vector, generated(arrays, np.mean(embeddings, axis=0)), rtol=0, atol=1e-5)
    small_twin.assert_rows(run.rows, models)


def test_unseen_device_gets_the_weights_of_the_mean_embedding(small_twin: Any) -> None:
    run = small_twin.run(PFedHN(hidden_size=4), fleet=Fleet(unseen=1))
    private = run.commit.state.private
    embeddings = [found for name, found in private.items() if name.startswith("embedding.")]
    assert len(embeddings) == 2
    [expected] = Hypernetwork.of(private).weights(np.mean(embeddings, axis=0, keepdims=True))
    assert_allclose(run.deployed(run.unseen).vector, expected, rtol=0, atol=1e-6)


def test_statistics_are_averaged(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(PFedHN(hidden_size=4), grouped, rounds=1)
    statistics = grouped.layout.select(lambda p: p.role == "statistic")
    found = run.weights.select(statistics).vector
    assert np.abs(found - run.device(0).initial.select(statistics).vector).max() > 1e-3
    for device in range(3):
        assert_array_equal(run.deployed(device).select(statistics).vector, found)


def test_network_starts_at_the_given_weights() -> None:
    weights = np.array([1.0, -2.0, 3.0], np.float32)
    network = Hypernetwork.drawn(2, 4, 1, weights)
    assert_array_equal(network.weights(np.ones((2, 2), np.float32)), [weights] * 2)
