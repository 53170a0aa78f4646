"""Updates per second on each backend, for models from tiny to large.

All backends train by FedAvg without evaluation: 10 of 100 devices per round, each with 96 examples and 3 steps of batch
32. Every round is committed. The backends take turns in one process. A turn is one run of each backend, without its
first rounds, which build interpreters. Ray is started only for its own runs, since its idle processes would slow the
others. The output is the median of updates per second, and the median and quartiles of the turns' ratios to the serial
backend.

    python benchmarks/backends.py [MODEL ...] [--turns 7] [--seconds 4]
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import ray
from rich.console import Console
from rich.table import Table
from workload import fleet_of, random_images, shipped_file

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan
from odt_sim.data.devices.federated import FederatedData
from odt_sim.observers.base import Observer
from odt_sim.persistence.records import RoundRecord
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.strategies.averaging.fedavg import FedAvg

DEVICES, EXAMPLES, COHORT, WARM_UP = 100, 96, 10, 3
BACKENDS: dict[str, Callable[[], Executor]] = {
    "serial": SerialBackend,
    "processes": ProcessesBackend,
    "ray": RayBackend,
}


def perceptron(hidden: list[int]) -> Path:
    """Return the file of a perceptron on 28x28 images; without hidden layers it is softmax regression."""
    build = {"_target_": "odt_sim.export.zoo.mlp", "input_shape": [28, 28, 1], "classes": 10, "hidden": hidden}
    return shipped_file("digits_mlp", build=build, batch_size=32)


MODELS: dict[str, Callable[[], Path]] = {
    "softmax, 7,850 parameters": lambda: perceptron([]),
    "perceptron, 159,010 parameters": lambda: perceptron([200]),
    "mnist_cnn, 56,714 parameters": lambda: shipped_file("mnist_cnn"),
}


class Clock(Observer):
    """An observer that records the seconds of rounds."""

    waits = True

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_round(self, record: RoundRecord) -> None:
        self.seconds.append(record.seconds)


def updates_a_second(model: TrainableModel, data: FederatedData, backend: Executor, rounds: int) -> float:
    """Return the updates per second of one run."""
    clock, total = Clock(), WARM_UP + rounds + 1  # the last round is evaluated, so it is not measured
    with tempfile.TemporaryDirectory() as folder:
        Simulation(
            model,
            data,
            FedAvg(),
            rounds=total,
            directory=Path(folder),
            fleet=Fleet(COHORT),
            plan=TrainingPlan(1, 0.05),
            evaluate_every=total,
            backend=backend,
        ).run(observers=[clock])
    if isinstance(backend, RayBackend):
        ray.shutdown()
    return COHORT * rounds / sum(clock.seconds[WARM_UP:-1])


def turns_of(model: TrainableModel, data: FederatedData, turns: int, seconds: float) -> np.ndarray:
    """Return `[turns, backends]` updates per second; each run takes about `seconds` on the serial backend."""
    speed = updates_a_second(model, data, SerialBackend(), 10)
    rounds = max(10, round(seconds * speed / COHORT))
    makers = BACKENDS.values()
    return np.array([[updates_a_second(model, data, make(), rounds) for make in makers] for _ in range(turns)])


def main() -> None:
    """Print a table of all models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help="the begin of a model's name")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="about how long one run is in one thread")
    given = parser.parse_args()
    data = fleet_of(*random_images(DEVICES * EXAMPLES), DEVICES)
    table = Table(
        "model", *(f"{name}, updates/s" for name in BACKENDS), *(f"{name} / serial" for name in list(BACKENDS)[1:])
    )
    for name, file in MODELS.items():
        if name.startswith(tuple(given.models)):
            speeds = turns_of(TrainableModel.load(file()), data, given.turns, given.seconds)
            quartiles = np.quantile(speeds[:, 1:] / speeds[:, :1], [0.25, 0.5, 0.75], axis=0).T
            ratios = [f"{middle:.2f} ({low:.2f} to {high:.2f})" for low, middle, high in quartiles]
            table.add_row(name, *(f"{speed:.0f}" for speed in np.median(speeds, 0)), *ratios)
    console = Console()
    console.print(table)
    console.print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
