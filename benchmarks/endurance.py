"""Memory over a long run: 500 rounds on Ray, measured every 20 rounds.

The workload is the CNN of `peers.py` with one step per device: 100 devices with 96 images each, 10 devices per round,
56,714 parameters. Every round is committed, and every 20th is evaluated. The measurements are the private memory (USS)
of the coordinator and of each actor, and the bytes in Ray's object store.

    python benchmarks/endurance.py [--rounds 500] [--strategy fedavg] [--backend ray]
"""

import argparse
import os
import tempfile
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import hydra.utils
import psutil
from footprint import MEGABYTE, own
from omegaconf import OmegaConf
from workload import fleet_of, random_images, shipped_file

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan
from odt_sim.observers.base import Observer
from odt_sim.persistence.records import RoundRecord
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.serial import SerialBackend

DEVICES, EXAMPLES, COHORT = 100, 96, 10
FIRST = 20  # the round of the first measurement, and the rounds between two measurements
STRATEGIES = Path(__file__).resolve().parents[1] / "conf" / "strategy"


class Scale(Observer):
    """An observer that measures the memory of this process, the actors and the object store.

    Attributes:
        weights: Megabytes of each measurement, by process or store.
    """

    def __init__(self) -> None:
        """Start without measurements."""
        self.weights: dict[str, list[float]] = {}

    def on_round(self, record: RoundRecord) -> None:
        """Measure every 20 rounds."""
        if record["round"] % FIRST:
            return
        found = {"coordinator": own()} | {f"actor {pid}": own(pid) for pid in actors()}
        if len(found) > 1:
            found["object store"] = object_store()
        for name, size in found.items():
            self.weights.setdefault(name, []).append(size / MEGABYTE)
        print(record["round"], *(f"{name} {sizes[-1]:.1f}" for name, sizes in self.weights.items()), flush=True)


def actors() -> list[int]:
    """Return the process ids of the Ray actors."""
    children = psutil.Process().children(recursive=True)
    return sorted(process.pid for process in children if "_Host" in " ".join(process.cmdline()))


def object_store() -> int:
    """Return the bytes of all objects in this node's object store."""
    import ray
    from ray._private.internal_api import node_stats

    node = ray.nodes()[0]
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"])
    return int(stats.store_stats.object_store_bytes_used)


def backend(name: str) -> Executor:
    """Return the backend; Ray is imported only when used."""
    if name == "serial":
        return SerialBackend()
    from odt_sim.simulation.executors.ray import RayBackend

    return RayBackend()


def main() -> None:
    parser = argparse.ArgumentParser(description="Weigh the processes of a long run.")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--strategy", default="fedavg", help="of conf/strategy")
    parser.add_argument("--backend", choices=["ray", "serial"], default="ray")
    options = parser.parse_args()
    scale = Scale()
    with tempfile.TemporaryDirectory() as folder:
        Simulation(
            TrainableModel.load(shipped_file("mnist_cnn", gradient_offset=True)),
            fleet_of(*random_images(DEVICES * EXAMPLES), DEVICES),
            hydra.utils.instantiate(OmegaConf.load(STRATEGIES / f"{options.strategy}.yaml")),
            rounds=options.rounds,
            directory=Path(folder),
            fleet=Fleet(COHORT),
            plan=TrainingPlan(learning_rate=0.05, steps=1),
            evaluate_every=FIRST,
            backend=backend(options.backend),
        ).run(observers=[scale])
    print(f"{options.strategy}, {options.backend}: MB in round {FIRST} and {options.rounds}, and their ratio")
    for name, sizes in scale.weights.items():
        print(f"{name}: {sizes[0]:.1f} {sizes[-1]:.1f} {sizes[-1] / sizes[0]:.3f}")


if __name__ == "__main__":
    main()
