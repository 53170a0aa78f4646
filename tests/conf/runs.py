"""Runs of one round on few devices, and their records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from odt_sim import TrainableModel
from odt_sim.cli.commands.run import launch
from odt_sim.cli.hydra.build import federated
from odt_sim.data.devices.federated import FederatedData
from odt_sim.persistence.run_folder import RunFolder

CONF = Path(__file__).parents[2] / "conf"
BASE = {"run.rounds": 1, "model": "softmax", "backend": "serial"}
FEW = {"fleet.devices": 4, "fleet.unseen": 1}
NPZ = {"data": "npz", "data.path": "images.npz", "data.y": "labels"}


@dataclass(frozen=True)
class Run:
    """The records in a run's folder."""

    folder: Path

    @property
    def records(self) -> RunFolder:
        return RunFolder(self.folder)

    @property
    def summary(self) -> Any:
        return self.records.summary()

    @property
    def config(self) -> Any:
        return OmegaConf.load(self.folder / ".hydra" / "config.yaml")

    @property
    def model(self) -> TrainableModel:
        return TrainableModel.load(self.folder / "initial.tflite")

    def data(self) -> FederatedData:
        """Build the data again; its sizes must equal those that the devices recorded."""
        data = federated(self.config)
        assert [row["train_examples"] for row in self.records.devices()] == data.train_sizes.tolist()
        assert [row["examples"] for row in self.records.devices()] == [len(data.test(d)) for d in range(data.devices)]
        return data


def given(overrides: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in {**BASE, **overrides}.items()]


def ran(**overrides: Any) -> Run:
    outcome = launch(given(overrides))
    assert outcome.failed == 0
    run = Run(outcome.folder)
    assert run.summary["rounds"] == 1
    return run
