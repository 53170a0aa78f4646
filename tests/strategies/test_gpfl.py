"""GPFL against plain numpy: numerical gradients of its loss in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from odt_sim import Device, Fleet, TrainableModel
from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.strategies.gpfl import GPFL

Simulate = Callable[..., Any]
RATE = 0.1  # as in the runs, see conftest
CONDITION, EMBEDDINGS = "conditional_valve/condition", "conditional_valve/category_embeddings"
Weights = dict[str, Any]


def log_softmax(z: Any) -> Any:
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def of_condition(w: Weights, part: str, c: Any) -> Any:
    dense, normal = f"conditional_valve/{part}/{part}_dense", f"conditional_valve/{part}/{part}_normalization"
    h = np.maximum(c @ w[f"{dense}/kernel"] + w[f"{dense}/bias"], 0)
    return (h - h.mean()) / np.sqrt(h.var() + 1e-5) * w[f"{normal}/gamma"] + w[f"{normal}/beta"]


def under(w: Weights, x: Any, c: Any) -> Any:
    h = np.maximum(x @ w["mlp/dense_0/kernel"] + w["mlp/dense_0/bias"], 0)
    return np.maximum(h * (of_condition(w, "gamma", c) + 1) + of_condition(w, "beta", c), 0)


def unit(rows: Any) -> Any:
    return rows / np.sqrt((rows**2).sum(axis=-1, keepdims=True) + 1e-12)


def loss(w: Weights, x: Any, y: Any, received: Any, magnitude: float, decay: float) -> float:
    each = np.arange(len(y)), y
    logits = under(w, x, w[CONDITION]) @ w["mlp/classifier/kernel"] + w["mlp/classifier/bias"]
    f = under(w, x, received.mean(axis=0))
    angle = -log_softmax(unit(f) @ unit(w[EMBEDDINGS]).T)[each]
    apart = np.sqrt(((f - received[y]) ** 2).sum(axis=-1) + 1e-12)
    squares = sum((v**2).sum() for name, v in w.items() if name.startswith("conditional_valve/") and name != CONDITION)
    return float((-log_softmax(logits)[each] + angle + magnitude * apart).mean() + decay / 2 * squares)


def step(w: Weights, trained: Any, value: Callable[[Weights], float]) -> Weights:
    """Return the weights after a step of descent on some of them."""
    after = dict(w)
    for name in trained:
        gradient = np.zeros(w[name].shape)
        for place in np.ndindex(gradient.shape):
            moved = np.zeros(gradient.shape)
            moved[place] = 1e-6
            gradient[place] = (value(w | {name: w[name] + moved}) - value(w | {name: w[name] - moved})) / 2e-6
        after[name] = w[name] - RATE * gradient
    return after


def named(weights: Any) -> Weights:
    return {name: weights[name].astype(np.float64) for name in weights.layout.names}


def stays(name: str) -> bool:
    return name == CONDITION or name.startswith("mlp/classifier/")


def condition(twin: Any, device: int, embeddings: Any) -> Any:
    counts = np.bincount(twin.part("train", device)[1], minlength=3)
    return sum(counts[c] * embeddings[c] for c in range(3)) / counts.sum()


@pytest.mark.slow
def test_agrees_with_numpy(
    simulate: Simulate, small_twin: Any, with_valve: TrainableModel, small_data: FederatedData
) -> None:
    run = simulate(GPFL(magnitude=0.3, decay=0.05), with_valve, small_data, rounds=2)
    w = named(Device(with_valve, (small_data.x, small_data.y)).parameters())
    heads = [{name: value for name, value in w.items() if stays(name)}] * 3
    for round in (1, 2):
        models, received = [], w[EMBEDDINGS]
        for device in range(3):
            own = w | heads[device] | {CONDITION: condition(small_twin, device, received)}
            for x, y in small_twin.batches(device, round):

                def value(v: Weights, x: Any = x, y: Any = y, received: Any = received) -> float:
                    return loss(v, x, y, received, 0.3, 0.05)

                own = step(own, set(own) - {CONDITION}, value)
            models.append(own)
            heads[device] = {name: own[name] for name in heads[device]}
        w = {name: np.average([m[name] for m in models], axis=0, weights=small_data.train_sizes) for name in w}
    for device in range(3):
        found = named(run.deployed(device))
        expected = w | heads[device] | {CONDITION: condition(small_twin, device, w[EMBEDDINGS])}
        for name, value in expected.items():
            assert_allclose(found[name], value, rtol=0, atol=5e-5, err_msg=name)
    assert np.abs(heads[0]["mlp/classifier/kernel"] - heads[1]["mlp/classifier/kernel"]).max() > 1e-2


def test_head_and_condition_stay(simulate: Simulate, with_valve: TrainableModel, small_data: FederatedData) -> None:
    run = simulate(GPFL(), with_valve, small_data, rounds=1)
    sent = run.weights.layout
    assert not any(map(stays, sent.names))
    assert sent.size == 6 * 5 + 5 + 3 * 5 + 2 * (5 * 5 + 3 * 5)
    assert sorted(run.device(0).state["own"].layout.names) == [
        CONDITION,
        "mlp/classifier/bias",
        "mlp/classifier/kernel",
    ]


def test_unseen_device_trains_its_head_under_the_shared_parts(
    simulate: Simulate, small_twin: Any, with_valve: TrainableModel, small_data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(GPFL(unseen_epochs=2), with_valve, small_data, rounds=2, fleet=Fleet(unseen=1))
    unseen = unseen_of(run)
    found, shared = run.deployed(unseen), run.weights
    assert_array_equal(found.select(shared.layout).vector, shared.vector)
    assert_allclose(found[CONDITION], condition(small_twin, unseen, shared[EMBEDDINGS]), rtol=0, atol=1e-6)
    initial = named(Device(with_valve, (small_data.x, small_data.y)).parameters())
    assert np.abs(found["mlp/classifier/kernel"] - initial["mlp/classifier/kernel"]).max() > 1e-2


@pytest.mark.parametrize("setting", ["magnitude", "decay"])
def test_factors_below_zero_are_refused(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"strategy\.{setting}: expected a number of at least 0, found -1"):
        GPFL(**{setting: -1})
