"""FedFomo against plain numpy: models weighted by validation loss only."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.base import ServerState
from odt_sim.strategies.clusters.fedfomo import FedFomo

Simulate = Callable[..., Any]


@pytest.fixture
def mixed(data: FederatedData) -> FederatedData:
    """Devices share some validation examples, so that other models have value."""
    indices = data.indices.copy()
    places = np.concatenate([np.arange(start, stop) for start, stop in data.offsets[:, 1:3]])
    indices[places] = indices[np.roll(places, 4)]
    return replace(data, indices=indices)


def taken(twin: Any, v: Any, others: Any, device: int) -> tuple[Any, float]:
    """Return v after combining the other models, and the sum of their weights."""
    losses = [twin.loss(twin.at(w), device, "validation") for w in (v, *others)]
    worth = [max(0.0, (losses[0] - loss) / np.linalg.norm(w - v)) for loss, w in zip(losses[1:], others, strict=True)]
    total = sum(worth)
    return (v + sum(o / total * (w - v) for o, w in zip(worth, others, strict=True)) if total else v), total


def test_agrees_with_numpy(simulate: Simulate, twin: Any, softmax: TrainableModel, mixed: FederatedData) -> None:
    run = simulate(FedFomo(), softmax, mixed)
    twin = replace(twin, data=mixed)
    models = [twin.initial] * 3
    totals = []
    for round in range(1, run.rounds + 1):
        before = models
        for device in range(3):
            v, total = before[device], 0.0
            if round > 1:
                v, total = taken(twin, v, [w for j, w in enumerate(before) if j != device], device)
            totals.append(total)
            models = [*models[:device], twin.descend(v, device, round), *models[device + 1 :]]
    assert sum(total > 0 for total in totals) > 1
    for device, w in enumerate(models):
        np.testing.assert_allclose(run.deployed(device).vector, w, rtol=0, atol=1e-5)
        np.testing.assert_allclose(run.broadcast[f"model.{device}"].vector, w, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, models)


def test_unseen_device_combines_models_and_trains(
    simulate: Simulate, twin: Any, softmax: TrainableModel, mixed: FederatedData, unseen_of: Any
) -> None:
    run = simulate(FedFomo(unseen_epochs=3), softmax, mixed, fleet=Fleet(unseen=1))
    twin = replace(twin, data=mixed)
    unseen = unseen_of(run)
    others = [run.broadcast[f"model.{j}"].vector.astype(np.float64) for j in range(3) if j != unseen]
    v, total = taken(twin, twin.initial, others, unseen)
    assert total > 0
    own = twin.descend(v, unseen, run.rounds, range(3))
    np.testing.assert_allclose(run.deployed(unseen).vector, own, rtol=0, atol=1e-5)


def test_no_validation_examples_equals_local_training(
    simulate: Simulate, softmax: TrainableModel, data: FederatedData
) -> None:
    offsets = data.offsets.copy()
    offsets[:, 1] = offsets[:, 2]
    data = replace(data, offsets=offsets)
    alone = simulate(Local(), softmax, data)
    with pytest.warns(UserWarning, match="but no device has any, so no device uses another device's model"):
        run = simulate(FedFomo(), softmax, data)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, alone.deployed(device).vector)


def test_choice_ignores_test_examples(simulate: Simulate, softmax: TrainableModel, mixed: FederatedData) -> None:
    y = mixed.y.copy()
    for device in range(3):
        index = mixed.test(device)
        y[index] = (y[index] + 1) % 10
    one, other = (simulate(FedFomo(), softmax, data) for data in (mixed, replace(mixed, y=y)))
    for device in range(3):
        np.testing.assert_array_equal(one.deployed(device).vector, other.deployed(device).vector)


def test_downloads_other_models(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    run = simulate(FedFomo(), softmax, data, rounds=2)
    rounds = [json.loads(line) for line in (run.directory / "rounds.jsonl").read_text().splitlines()]
    size = softmax.layout.size * 4
    assert [(row["bytes_down"], row["bytes_up"]) for row in rounds] == [(0, 3 * size), (3 * 2 * size, 3 * size)]


def test_limited_models_arrive_in_turn(simulate: Simulate, softmax: TrainableModel, mixed: FederatedData) -> None:
    strategy = FedFomo(models=1)
    run = simulate(strategy, softmax, mixed)
    rounds = [json.loads(line) for line in (run.directory / "rounds.jsonl").read_text().splitlines()]
    size = softmax.layout.size * 4
    assert [row["bytes_down"] for row in rounds] == [0, 3 * size, 3 * size]
    for device in range(3):
        states = [ServerState({**run.broadcast, "turn": np.array([turn])}) for turn in (1, 2)]
        turns = [strategy.message(state, device) for state in states]
        assert [len(received) for received in turns] == [1, 1]
        others = {f"model.{other}" for other in range(3) if other != device}
        assert {name for received in turns for name in received} == others


def test_device_receives_all_models_before_one_again() -> None:
    """Of four other models, two arrive per round."""
    models = {f"model.{device}": np.array([device]) for device in range(5)}
    states = [ServerState({**models, "turn": np.array([turn])}) for turn in range(3)]
    received = [sorted(FedFomo(models=2).message(state, 0)) for state in states]
    assert received == [["model.1", "model.2"], ["model.3", "model.4"], ["model.1", "model.2"]]


@pytest.mark.parametrize(("name", "least"), [("unseen_epochs", 0), ("models", 1)])
def test_settings_out_of_range(name: str, least: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"strategy\.{name}: expected a whole number of at least {least}"):
        FedFomo(**{name: least - 1})
