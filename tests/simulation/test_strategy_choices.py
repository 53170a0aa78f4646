"""Cohorts chosen by a strategy, and predictors that it deploys instead of weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet
from odt_sim.aggregators import DifferentialPrivacy
from odt_sim.deploy.models import device_model
from odt_sim.device.predictor import Ensemble
from odt_sim.errors import SimulationError, StrategyError
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local


class TakesTurns(FedAvg):
    """A strategy that trains one device after another; in even rounds, the drawn cohort."""

    def __init__(self, chosen: Any = None) -> None:
        self._chosen = chosen

    def cohort(self, state: Any, round: int, available: Any) -> Any:
        if self._chosen is not None:
            return self._chosen
        return [available[round % len(available)]] if round % 2 else None


class AveragesAnswers(FedAvg):
    """A strategy that deploys an ensemble of the exported and the trained model."""

    def deploy(self, device: Any, broadcast: Any) -> Any:
        exported = device.weights
        device.restore(broadcast["weights"])
        return Ensemble(device, [exported, device.weights], [0.25, 0.75])


def test_strategy_chooses_its_cohorts(simulation: Any, tmp_path: Path) -> None:
    simulation(TakesTurns(), tmp_path, rounds=3, fleet=Fleet(cohort=4, unseen=1)).run()
    assert [record.devices for record in RunFolder(tmp_path).rounds()] == [1, 4, 1]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([], "ValueError: it chose no device, expected"),
        ([99], "ValueError: it chose device 99, expected"),
        ([1, 1], "ValueError: it chose device 1, expected"),
        (3, "TypeError: it returned int, expected the ids of devices"),
    ],
)
def test_impossible_cohort_is_refused(simulation: Any, tmp_path: Path, chosen: Any, message: str) -> None:
    with pytest.raises(SimulationError, match=f"failed in cohort in round 1 with {message}"):
        simulation(TakesTurns(chosen), tmp_path).run()


def test_chosen_cohorts_are_refused_where_privacy_is_promised(simulation: Any, tmp_path: Path) -> None:
    """Epsilon and the denominator of the mean are those of `fleet.cohort` devices drawn uniformly."""
    with pytest.raises(StrategyError, match="TakesTurns: chooses its cohorts, but aggregator differential_privacy"):
        simulation(TakesTurns(), tmp_path, fleet=Fleet(cohort=2), aggregator=DifferentialPrivacy())


def test_ensemble_is_evaluated(simulation: Any, fleet_data: Any, momentum: Any, tmp_path: Path) -> None:
    """Its metrics are those of the mean of both models' probabilities."""
    run = simulation(AveragesAnswers(), tmp_path, rounds=1, fleet=Fleet())
    run.run()
    records = RunFolder(tmp_path).devices()
    again = simulation(AveragesAnswers(), tmp_path, rounds=1, fleet=Fleet())
    for device in again.deployed([0, 3]):
        x, y = fleet_data.x[fleet_data.test(device.id)], fleet_data.y[fleet_data.test(device.id)]
        predictor = device.predictor
        assert predictor is not None
        shares = []
        for weights in predictor.models:
            device.restore(weights)
            logits = device.infer(x).astype(np.float64)
            shares.append(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
        mixed = 0.25 * shares[0] + 0.75 * shares[1]
        record = records[device.id]
        assert record["loss"] == pytest.approx(-np.log(mixed[np.arange(len(y)), y]).mean(), rel=1e-6)
        assert record["accuracy"] == (mixed.argmax(axis=1) == y).mean()
        assert record["predictor_bytes"] == 2 * 4 * momentum.layout.size + 16
    with pytest.raises(StrategyError, match=r"deploys a predictor \(Ensemble\), which the model.s \.tflite file"):
        device_model(again, 0)


def test_weights_have_no_predictor_bytes(simulation: Any, tmp_path: Path) -> None:
    simulation(Local(), tmp_path, rounds=1).run()
    assert "predictor_bytes" not in (tmp_path / "devices.jsonl").read_text()
