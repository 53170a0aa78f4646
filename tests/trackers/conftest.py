"""A short run, without MLflow's usage statistics."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from omegaconf import OmegaConf
from written_runs import BLANK, round_record

from odt_sim.persistence.summary import Summary

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before MLflow is imported

CONFIG = {
    "seed": 0,
    "run": {"rounds": 2, "resume": None},
    "train": {"learning_rate": 0.125},
    "strategy": {"_target_": "odt_sim.strategies.averaging.fedavg.FedAvg", "flags": [True, "two"]},
    "tracker": {"tracking_uri": "http://user:password@host"},
}

RECORDS = [
    round_record(1, devices=3, train_loss=None),
    round_record(2, devices=2, excluded_devices=[1], train_loss=0.25, accuracy=0.75),
]
SUMMARY = Summary.of({**BLANK, "rounds": 2, "metrics": {"accuracy": {"mean": 0.75, "worst": 0.5}, "loss": None}})

COSTS = {"bytes_down": 8.0, "bytes_up": 8.0, "seconds": 0.25}
FIGURES = {1: {"devices": 3.0, **COSTS}, 2: {"devices": 2.0, "train_loss": 0.25, "accuracy": 0.75, **COSTS}}
"""The numbers in each of `RECORDS`."""

SUMMARY_FIGURES = {
    **{f"summary/{name}": float(value) for name, value in BLANK.items() if isinstance(value, int | float)},
    **{"summary/rounds": 2.0, "summary/metrics/accuracy/mean": 0.75, "summary/metrics/accuracy/worst": 0.5},
}

Track = Callable[..., None]


@pytest.fixture
def track() -> Track:
    """Return a function that lets a tracker follow the run, which fails after a given round, if any."""
    from odt_sim.observers.base import Observers, RunInfo
    from odt_sim.trackers.base import settings_of

    def run(tracker: Any, folder: Path, *, name: str = "fedavg seed=0", fails_after: int | None = None) -> None:
        observers = Observers([tracker])
        observers.on_begin(RunInfo(name, settings_of(OmegaConf.create(CONFIG)), folder, rounds=2))
        for record in RECORDS[:fails_after]:
            observers.on_round(record)
        observers.on_end(SUMMARY if fails_after is None else None)

    return run


@pytest.fixture(scope="session")
def expected() -> dict[str, Any]:
    return {"rounds": FIGURES, "summary": SUMMARY_FIGURES}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Return a function that loads the events of a folder, without the TensorFlow that TensorBoard looks for."""
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return lambda folder: EventAccumulator(str(folder)).Reload()
