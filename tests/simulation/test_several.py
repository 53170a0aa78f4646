"""Fleets with models of several inputs or outputs: all backends give the same bits, and no column is missing."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan
from odt_sim.data import by_user, dirichlet, federate
from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import DataError
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.strategies import FedAvg, FedPer, KNNPer

RANDOM = np.random.default_rng(7)
USER, ITEM = np.arange(80) % 5, RANDOM.integers(0, 6, 80)
RATING = (USER + ITEM) % 4
FEATURES = RANDOM.normal(size=(80, 6)).astype(np.float32)
KIND = (FEATURES[:, 0] > 0).astype(int) + (FEATURES[:, 1] > 0)
SIZE = FEATURES[:, 2] - FEATURES[:, 3]


def ratings() -> FederatedData:
    """Return ratings with positional inputs: a tuple, as a data function may return."""
    return federate(check(Dataset("ratings", (USER, ITEM), RATING, users=USER)), by_user, None, 0)


def things() -> FederatedData:
    dataset = check(Dataset("things", FEATURES, {"size": SIZE, "kind": KIND}))
    return federate(dataset, partial(dirichlet, alpha=1.0, min_examples=5), 5, 0)


CASES = {"recommender": ratings, "heads": things}


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("strategy", [FedPer])
@pytest.mark.parametrize("name", CASES)
def test_ray_gives_the_serial_bits(
    name: str, strategy: Any, request: pytest.FixtureRequest, results: Callable[..., Any], tmp_path: Path
) -> None:
    plan = TrainingPlan(epochs=3, learning_rate=0.3)
    settings = {"model": request.getfixturevalue(name), "data": CASES[name](), "fleet": Fleet(unseen=1), "plan": plan}
    serial = results(strategy(), tmp_path / "serial", **settings)
    on_ray = results(strategy(), tmp_path / "ray", **settings, backend=RayBackend(actors=2))
    on_ray.assert_same_bits(serial)
    losses = [row["train_loss"] for row in serial.rounds]
    assert losses[-1] < losses[0]


def test_records_have_a_column_for_each_output(heads: TrainableModel, results: Any, tmp_path: Path) -> None:
    found = results(FedAvg(), tmp_path, model=heads, data=things())
    assert list(found.summary["metrics"])[:3] == ["loss", "accuracy_kind", "loss_kind"]
    assert {"mse_size", "r2_size"} <= found.summary["metrics"].keys()
    assert {"loss", "accuracy_kind_unweighted", "validation_mse_size"} <= found.rounds[-1].keys()
    for row in map(json.loads, found.devices.splitlines()):
        assert row["loss"] == pytest.approx(row["loss_kind"] + 0.5 * row["loss_size"], rel=1e-6)
        assert row["global_accuracy_kind"] == row["accuracy_kind"]


def test_data_with_other_names_is_refused(recommender: TrainableModel, tmp_path: Path) -> None:
    data = federate(check(Dataset("films", {"who": USER, "film": ITEM}, RATING, users=USER)), by_user, None, 0)
    with pytest.raises(
        DataError, match="data films: x: expected the arrays user, item, found who, film; use the same names"
    ):
        Simulation(recommender, data, FedAvg(), rounds=1, directory=tmp_path)
    single = federate(check(Dataset("films", USER, RATING, users=USER)), by_user, None, 0)
    with pytest.raises(DataError, match="data films: x: expected the arrays user, item, found a single array"):
        Simulation(recommender, single, FedAvg(), rounds=1, directory=tmp_path)


def test_a_strategy_that_mixes_outputs_refuses_several(heads: TrainableModel, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"knn_per: .* returns \[8, 3\] and \[8, 1\]"):
        Simulation(heads, things(), KNNPer(), rounds=1, directory=tmp_path)
