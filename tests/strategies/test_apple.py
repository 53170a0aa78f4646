"""APPLE against plain numpy: core models, and the devices' learned relations to them."""

import json
from collections.abc import Callable
from math import cos, pi
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.strategies.clusters.apple import APPLE

Simulate = Callable[..., Any]
RATE = 0.1  # as in the runs, see conftest
RELATION_RATE, MU, DECAY = 0.02, 2.0, 3


def train(twin: Any, cores: Any, p: Any, q: Any, device: int, round: int) -> tuple[Any, Any]:
    """Return a device's core model and relations after a round; `cores` are those before it."""
    scale = (1 + cos(pi * (round - 1) / DECAY)) / 2 if round - 1 < DECAY else 0
    cores, p = list(cores), p.copy()
    for x, y in twin.batches(device, round):
        g = twin.gradient(sum(share * w for share, w in zip(p, cores, strict=True)), x, y)
        slopes = np.array([g @ w for w in cores]) + MU * scale * (p - q)
        cores[device] = cores[device] - RATE * p[device] * g
        p = p - RELATION_RATE * slopes
    return cores[device], p


def test_agrees_with_numpy(simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData) -> None:
    """The proximal term ends after three of four rounds."""
    run = simulate(APPLE(RELATION_RATE, MU, DECAY), softmax, data, rounds=4)
    q = data.train_sizes / data.train_sizes.sum()
    cores, relations = [twin.descend(twin.initial, device, 1) for device in range(3)], [q] * 3
    for round in range(2, run.rounds + 1):
        trained = [train(twin, cores, p, q, device, round) for device, p in enumerate(relations)]
        cores, relations = [core for core, _ in trained], [p for _, p in trained]
    assert min(np.abs(p - q).max() for p in relations) > 1e-2
    models = [sum(share * w for share, w in zip(p, cores, strict=True)) for p in relations]
    for device in range(3):
        np.testing.assert_allclose(run.broadcast[f"model.{device}"].vector, cores[device], rtol=0, atol=1e-5)
        np.testing.assert_allclose(run.deployed(device).vector, models[device], rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, models)


def test_device_downloads_the_other_core_models(
    simulate: Simulate, softmax: TrainableModel, data: FederatedData
) -> None:
    run = simulate(APPLE(), softmax, data, rounds=2)
    rounds = [json.loads(line) for line in (run.directory / "rounds.jsonl").read_text().splitlines()]
    size, number = softmax.layout.size * 4, 8
    assert [(row["bytes_down"], row["bytes_up"]) for row in rounds] == [
        (0, 3 * size),
        (3 * 2 * (size + number), 3 * size),
    ]


def test_relations_grow_with_the_known_devices(
    simulate: Simulate, softmax: TrainableModel, data: FederatedData
) -> None:
    """With two of three devices per round, a new device enters with its share of the examples."""
    run = simulate(APPLE(relation_rate=0), softmax, data, rounds=6, fleet=Fleet(cohort=2))
    counts = dict(enumerate(data.train_sizes))
    found = [run.device(device).state for device in range(3)]
    assert any(len(state["others"]) == 2 for state in found)
    for device, state in enumerate(found):
        known = np.array([counts[id] for id in [*state["others"], device]])
        np.testing.assert_allclose(state["relations"], known / known.sum(), rtol=1e-12)


def test_unseen_device_trains_the_sum_of_all_core_models(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(APPLE(unseen_epochs=3), softmax, data, fleet=Fleet(unseen=1))
    unseen = unseen_of(run)
    seen = [device for device in range(3) if device != unseen]
    models = [run.broadcast[f"model.{device}"].vector.astype(np.float64) for device in seen]
    start = np.average(models, axis=0, weights=data.train_sizes[seen])
    own = twin.descend(start, unseen, run.rounds, range(3))
    np.testing.assert_allclose(run.deployed(unseen).vector, own, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{"relation_rate": 2}, {"regularization": -1}, {"decay_rounds": 0}, {"unseen_epochs": -1}]
)
def test_settings_out_of_range(settings: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"strategy\.{next(iter(settings))}: expected a .*number.*, found "):
        APPLE(**settings)
