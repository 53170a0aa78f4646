"""FedFomo against plain numpy: models weighted by validation loss only."""

from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.base import ServerState
from odt_sim.strategies.clusters.fedfomo import FedFomo


@pytest.fixture
def mixed(twin: Any) -> Any:
    return twin.with_mixed_validation()


def taken(twin: Any, v: Any, others: Any, device: int) -> tuple[Any, float]:
    """Return v after combining the other models, and the sum of their weights."""
    losses = [twin.loss(twin.at(w), device, "validation") for w in (v, *others)]
    worth = [max(0.0, (losses[0] - loss) / np.linalg.norm(w - v)) for loss, w in zip(losses[1:], others, strict=True)]
    total = sum(worth)
    return (v + sum(o / total * (w - v) for o, w in zip(worth, others, strict=True)) if total else v), total


def test_agrees_with_numpy(mixed: Any) -> None:
    run, twin = mixed.run(FedFomo()), mixed
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


def test_unseen_device_combines_models_and_trains(mixed: Any) -> None:
    run, twin = mixed.run(FedFomo(unseen_epochs=3), fleet=Fleet(unseen=1)), mixed
    unseen = run.unseen
    others = [run.broadcast[f"model.{j}"].vector.astype(np.float64) for j in range(3) if j != unseen]
    v, total = taken(twin, twin.initial, others, unseen)
    assert total > 0
    own = twin.descend(v, unseen, run.rounds, range(3))
    np.testing.assert_allclose(run.deployed(unseen).vector, own, rtol=0, atol=1e-5)


def test_no_validation_examples_equals_local_training(twin: Any) -> None:
    data = twin.without_validation(0, 1, 2)
    alone = twin.run(Local(), data=data)
    with pytest.warns(UserWarning, match="but no device has any, so no device uses another device's model"):
        run = twin.run(FedFomo(), data=data)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, alone.deployed(device).vector)


def test_choice_ignores_test_examples(mixed: Any) -> None:
    one, other = mixed.run(FedFomo()), mixed.run(FedFomo(), data=mixed.relabelled("test"))
    for device in range(3):
        np.testing.assert_array_equal(one.deployed(device).vector, other.deployed(device).vector)


def test_downloads_other_models(twin: Any, softmax: TrainableModel) -> None:
    run = twin.run(FedFomo(), rounds=2)
    size = softmax.layout.size * 4
    assert run.traffic == [(0, 3 * size), (3 * 2 * size, 3 * size)]


def test_limited_models_arrive_in_turn(mixed: Any, softmax: TrainableModel) -> None:
    strategy = FedFomo(models=1)
    run = mixed.run(strategy)
    size = softmax.layout.size * 4
    assert [row["bytes_down"] for row in run.records] == [0, 3 * size, 3 * size]
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
