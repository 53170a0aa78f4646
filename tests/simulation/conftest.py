"""A small fleet on three Gaussian clouds, and bit-for-bit comparison of runs."""

import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from odt_sim import Fleet, Simulation, Strategy, TrainableModel, TrainingPlan
from odt_sim.data import dirichlet, federate
from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.federated import FederatedData
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.simulation.run import cohort

PLAN = TrainingPlan(epochs=1, learning_rate=0.05)
FLEET = Fleet(unseen=1)


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a run, without times.

    Attributes:
        summary: What `run` returned.
        rounds: The lines of `rounds.jsonl`.
        devices: The bytes of `devices.jsonl`.
        tensors: The tensors of the server's checkpoint.
        files: The names of the files below the checkpoint's folder, except device states.
        states: The bytes of device states, by round, device and name.
    """

    summary: dict[str, Any]
    rounds: list[dict[str, Any]]
    devices: bytes
    tensors: dict[str, NDArray[Any]]
    files: list[str]
    states: dict[tuple[int, str], bytes]

    @classmethod
    def read(cls, folder: Path) -> "Results":
        summary = json.loads((folder / "summary.json").read_text())
        rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        for timed in (summary, *rounds):
            del timed["seconds"]
        checkpoint = folder / "checkpoint"
        files = sorted(path.name for path in checkpoint.glob("*.*"))
        tensors = load_file(checkpoint / f"server.{summary['rounds']}.safetensors")
        tensors["versions"] = tensors["versions"][:, :2]  # how devices share files depends on the blocks
        states = {
            (int(path.name.split(".")[1]), name): tensor.tobytes()
            for path in checkpoint.glob("devices/*/*")
            for name, tensor in load_file(path).items()
        }
        return cls(summary, rounds, (folder / "devices.jsonl").read_bytes(), tensors, files, states)

    def assert_same_bits(self, other: "Results") -> None:
        assert self.rounds == other.rounds
        assert without_strategy(self.summary) == without_strategy(other.summary)
        assert self.devices == other.devices
        assert self.files == other.files
        assert self.states == other.states
        assert self.tensors.keys() == other.tensors.keys()
        for name, tensor in self.tensors.items():
            assert tensor.tobytes() == other.tensors[name].tobytes(), name


def without_strategy(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary without the strategy's settings, such as the worker to kill."""
    settings = {name: text for name, text in summary.get("settings", {}).items() if not name.startswith("strategy.")}
    return {**summary, "settings": settings}


@pytest.fixture(autouse=True)
def large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small cohort form two blocks of several devices."""
    monkeypatch.setattr(cohort, "FEWEST_BLOCKS", 2)


@pytest.fixture(scope="session")
def clouds() -> Dataset:
    """Return 90 points in 6 dimensions, of 3 overlapping classes."""
    random = np.random.default_rng(5)
    y = np.arange(90, dtype=np.int32) % 3
    x = (random.normal(size=(90, 6)) + 1.5 * np.eye(3, 6)[y]).astype(np.float32)
    return Dataset("clouds", x, y, classes=3)


@pytest.fixture(scope="session")
def spread() -> Callable[..., FederatedData]:
    """Return a function that partitions a data set over devices with label skew."""
    return lambda dataset, devices: federate(dataset, partial(dirichlet, alpha=1.0, min_examples=5), devices, seed=0)


@pytest.fixture(scope="session")
def fleet_data(clouds: Dataset, spread: Callable[..., FederatedData]) -> FederatedData:
    """Return the clouds over 7 devices."""
    return spread(clouds, 7)


@pytest.fixture(scope="session")
def simulation(momentum: TrainableModel, fleet_data: FederatedData) -> Callable[..., Simulation]:
    """Return a function that creates a simulation, of 3 rounds by default."""

    def make(strategy: Strategy, directory: Path, model: TrainableModel = momentum, **settings: Any) -> Simulation:
        settings = {"data": fleet_data, "rounds": 3, "fleet": FLEET, "plan": PLAN, "evaluate_every": 2, **settings}
        return Simulation(model, settings.pop("data"), strategy, directory=directory, **settings)

    return make


@pytest.fixture(scope="session")
def results(simulation: Callable[..., Simulation]) -> Callable[..., Results]:
    """Return a function that runs a simulation and returns its results."""

    def run(strategy: Strategy, directory: Path, **settings: Any) -> Results:
        simulation(strategy, directory, **settings).run()
        return Results.read(directory)

    return run


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of user strategies, imported as a user would."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("user_strategies")


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Start one Ray for all tests."""
    import ray

    RayBackend().start()
    yield
    ray.shutdown()
