"""A short run as a coordinator reports it, and MLflow kept from sending usage statistics."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from omegaconf import OmegaConf

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before it is imported

CONFIG = {
    "seed": 0,
    "run": {"rounds": 2, "resume": None},
    "train": {"learning_rate": 0.125},
    "strategy": {"_target_": "odt_sim.strategies.fedavg.FedAvg", "flags": [True, "two"]},
    "tracker": {"tracking_uri": "http://user:password@host"},
}

RECORDS: list[dict[str, Any]] = [
    {"round": 1, "strategy": "fedavg", "devices": 3, "excluded_devices": [], "train_loss": None, "seconds": 0.5},
    {"round": 2, "strategy": "fedavg", "devices": 2, "excluded_devices": [1], "train_loss": 0.25, "accuracy": 0.75},
]

SUMMARY: dict[str, Any] = {
    "strategy": "fedavg",
    "rounds": 2,
    "cohort": None,
    "metrics": {"accuracy": {"mean": 0.75, "worst": 0.5}, "loss": None},
}

FIGURES = {
    1: {"devices": 3.0, "seconds": 0.5},
    2: {"devices": 2.0, "train_loss": 0.25, "accuracy": 0.75},
}
"""What a tracker gets of each of `RECORDS`."""

SUMMARY_FIGURES = {
    "summary/rounds": 2.0,
    "summary/metrics/accuracy/mean": 0.75,
    "summary/metrics/accuracy/worst": 0.5,
}

Track = Callable[..., None]


@pytest.fixture
def track() -> Track:
    """Returns a function that lets a tracker follow the run, up to a round that fails where one is named."""
    from odt_sim.trackers.flat import settings_of
    from odt_sim.trackers.tracking import tracked

    def run(tracker: Any, folder: Path, *, name: str = "fedavg seed=0", fails_after: int | None = None) -> None:
        with tracked(tracker, name, settings_of(OmegaConf.create(CONFIG)), folder) as tracking:
            for record in RECORDS[:fails_after]:
                tracking.round(record)
            if fails_after is not None:
                raise RuntimeError("the run failed")
            tracking.summary = SUMMARY

    return run


@pytest.fixture(scope="session")
def expected() -> dict[str, Any]:
    return {"rounds": FIGURES, "summary": SUMMARY_FIGURES}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Returns a function that loads the events of a folder, without the TensorFlow that TensorBoard looks for."""
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return lambda folder: EventAccumulator(str(folder)).Reload()
