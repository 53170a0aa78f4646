"""APPLE against plain numpy: core models, and the devices' learned relations to them."""

from math import cos, pi
from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.clusters.apple import APPLE

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


def test_agrees_with_numpy(twin: Any) -> None:
    """The proximal term ends after three of four rounds."""
    run = twin.run(APPLE(RELATION_RATE, MU, DECAY), rounds=4)
    q = twin.data.train_sizes / twin.data.train_sizes.sum()
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


def test_device_downloads_the_other_core_models(twin: Any, softmax: TrainableModel) -> None:
    run = twin.run(APPLE(), rounds=2)
    size, number = softmax.layout.size * 4, 8
    assert run.traffic == [
        (0, 3 * size),
        (3 * 2 * (size + number), 3 * size),
    ]


def test_relations_grow_with_the_known_devices(twin: Any) -> None:
    """With two of three devices per round, a new device enters with its share of the examples."""
    run = twin.run(APPLE(relation_rate=0), rounds=6, fleet=Fleet(cohort=2))
    counts = dict(enumerate(twin.data.train_sizes))
    found = [run.device(device).state for device in range(3)]
    assert any(len(state["others"]) == 2 for state in found)
    for device, state in enumerate(found):
        known = np.array([counts[id] for id in [*state["others"], device]])
        np.testing.assert_allclose(state["relations"], known / known.sum(), rtol=1e-12)


def test_unseen_device_trains_the_sum_of_all_core_models(twin: Any) -> None:
    run = twin.run(APPLE(unseen_epochs=3), fleet=Fleet(unseen=1))
    unseen = run.unseen
    seen = [device for device in range(3) if device != unseen]
    models = [run.broadcast[f"model.{device}"].vector.astype(np.float64) for device in seen]
    start = np.average(models, axis=0, weights=twin.data.train_sizes[seen])
    own = twin.descend(start, unseen, run.rounds, range(3))
    np.testing.assert_allclose(run.deployed(unseen).vector, own, rtol=0, atol=1e-5)
