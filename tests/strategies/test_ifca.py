"""IFCA against plain numpy: a model for each cluster, which devices choose by their training loss."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.ifca import IFCA

Simulate = Callable[..., Any]


def choice(twin: Any, models: Any, device: int) -> int:
    return int(np.argmin([twin.loss(twin.at(w), device, "train") for w in models]))


def test_agrees_with_numpy(simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData) -> None:
    """One round of warming up, in which devices 0 and 2 train model 0, then two of choice."""
    run = simulate(IFCA(clusters=2, warm_up_rounds=1), softmax, data)
    sizes = data.train_sizes
    models = [twin.initial] * 2
    for round in range(1, run.rounds + 1):
        chosen = [device % 2 if round == 1 else choice(twin, models, device) for device in range(3)]
        trained = [twin.descend(models[chosen[device]], device, round) for device in range(3)]
        for cluster in set(chosen):
            members = [device for device in range(3) if chosen[device] == cluster]
            models[cluster] = np.average([trained[d] for d in members], axis=0, weights=sizes[members])
    for cluster, w in enumerate(models):
        np.testing.assert_allclose(run.broadcast[f"weights.{cluster}"].vector, w, rtol=0, atol=1e-5)
    chosen = [choice(twin, models, device) for device in range(3)]
    assert [row["cluster"] for row in run.rows] == chosen
    assert set(chosen) == {0, 1}
    twin.assert_rows(run.rows, [models[cluster] for cluster in chosen])


def test_one_cluster_is_fedavg(simulate: Simulate, grouped: TrainableModel, small_data: FederatedData) -> None:
    run, plain = simulate(IFCA(clusters=1), grouped, small_data), simulate(FedAvg(), grouped, small_data)
    np.testing.assert_array_equal(run.broadcast["weights.0"].vector, plain.weights.vector)
    assert [row["loss"] for row in run.rows] == [row["loss"] for row in plain.rows]


def test_a_model_that_nobody_trains_stays(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    """All models are equal, and devices take the first of equals."""
    run = simulate(IFCA(clusters=3, warm_up_rounds=0), softmax, data, rounds=1)
    initial = run.device(0).parameters().vector
    same = [np.array_equal(run.broadcast[f"weights.{cluster}"].vector, initial) for cluster in range(3)]
    assert same == [False, True, True]


def test_all_models_go_down_and_one_up(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    run = simulate(IFCA(clusters=2), softmax, data, rounds=1)
    (record,) = map(json.loads, (run.directory / "rounds.jsonl").read_text().splitlines())
    size = softmax.layout.size * 4
    assert (record["bytes_down"], record["bytes_up"]) == (3 * 2 * size, 3 * (size + 4))


def test_an_unseen_device_takes_the_model_that_fits_its_training_examples(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(IFCA(), softmax, data, fleet=Fleet(unseen=1))
    unseen = unseen_of(run)
    models = [run.broadcast[f"weights.{cluster}"].vector.astype(np.float64) for cluster in range(2)]
    assert run.rows[unseen]["cluster"] == choice(twin, models, unseen)


def test_settings_that_cannot_be() -> None:
    for settings, name in (({"clusters": 0}, "clusters"), ({"warm_up_rounds": -1}, "warm_up_rounds")):
        with pytest.raises(ConfigurationError, match=rf"strategy\.{name}: expected a whole number, at least "):
            IFCA(**settings)
