"""Some rounds of the School experiment equal FedAvg in plain numpy on the same splits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from orders import orders
from safetensors.numpy import load_file

from odt_sim.cli.commands.run import launch
from odt_sim.cli.hydra.build import federated
from odt_sim.cli.hydra.overrides import composed
from odt_sim.data.devices.federated import FederatedData
from odt_sim.persistence.run_folder import RunFolder

SCHOOL = Path(__file__).parents[3] / "shared" / "data" / "school.npz"
ROUNDS, RATE, BATCH, SEED = 3, 0.03, 32, 5

Array = np.ndarray[Any, Any]


@pytest.fixture
def overrides() -> list[str]:
    if not SCHOOL.exists():
        pytest.skip("the shared data folder has no school.npz")
    settings = {"data.path": SCHOOL, "run.rounds": ROUNDS, "train.learning_rate": RATE, "seed": SEED}
    return ["+experiment=reproduce/school", "backend=serial", *(f"{key}={value}" for key, value in settings.items())]


def test_agrees_with_numpy(overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = launch([*overrides, "strategy=fedavg"])
    assert outcome.failed == 0
    splits = federated(composed(overrides))
    parts = [standardized(splits, school) for school in range(splits.devices)]
    w = trained([train for train, _ in parts])
    found = load_file(outcome.folder / "checkpoint" / f"server.{ROUNDS}.safetensors")["broadcast.weights"]
    np.testing.assert_allclose(found, w, rtol=0, atol=1e-5)
    rows = RunFolder(outcome.folder).devices()
    errors = [float(np.mean((with_one(x) @ w - y) ** 2)) for _, (x, y) in parts]
    assert [row["mse"] for row in rows] == pytest.approx(errors, abs=1e-5)
    assert [2 * row["loss"] for row in rows] == pytest.approx(errors, abs=1e-5)


def standardized(splits: FederatedData, school: int) -> list[tuple[Array, Array]]:
    """Return a school's training and test examples from the file."""
    file = np.load(SCHOOL)
    x, y = file["x"].astype(np.float64), (file["y"].astype(np.float64) - 1) / 69
    train, test = splits.train(school), splits.test(school)
    assert set(file["school"][[*train, *test]]) == {school}
    deviation = x[train].std(axis=0)
    deviation[deviation < 1e-9] = 1
    return [((x[part] - x[train].mean(axis=0)) / deviation, y[part]) for part in (train, test)]


def trained(schools: list[tuple[Array, Array]]) -> Array:
    """Return the weights of FedAvg on half the squared error, the bias last."""
    w = np.zeros(29)
    for round in range(1, ROUNDS + 1):
        own = [descended(w, x, y, school, round) for school, (x, y) in enumerate(schools)]
        w = np.average(own, axis=0, weights=[len(y) for _, y in schools])
    return w


def descended(w: Array, x: Array, y: Array, school: int, round: int) -> Array:
    order = next(orders(SEED, school, round, len(y)))
    for start in range(0, len(y), BATCH):
        rows = order[start : start + BATCH]
        batch = with_one(x[rows])
        w = w - RATE * batch.T @ (batch @ w - y[rows]) / len(rows)
    return w


def with_one(x: Array) -> Array:
    return np.c_[x, np.ones(len(x))]
