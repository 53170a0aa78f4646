"""Growth of time and memory with the fleet, the cohort, or the parameters of the model.

The fleets have 1e3 to 1e6 devices with 4 examples of 16 features each. The model is a softmax regression of 170
parameters, so that training does not hide the cost of coordination. With --hidden, the models are perceptrons with one
hidden layer (27 parameters per unit, plus 10). Each fleet runs in a separate process. The runs take turns of a few
rounds, so that other load affects all alike. An option with several numbers starts a run for each of them.

- set-up: the time from the data set in memory to the first round: partition, leakage check, all other checks, first
  commit. Its memory is the peak of the whole process, including the data set.
- round: the median of the rounds without evaluation, as wall-clock and CPU time of the coordinator's process.
- evaluation: the additional time of a round that evaluates the devices of `fleet.evaluated`.
- memory of the rounds: the coordinator's peak since the set-up, without the arrays of the data set and its index and
  without shared memory; and the private memory of each Ray actor. Actors map the data set from the object store.
- disk: the final size of the checkpoint's folder.

    python benchmarks/scale.py [--devices 1000 10000 100000 1000000] [--cohort 100] [--hidden 0] [--epochs 1]
        [--strategy fedavg] [--backend serial] [--output figures.json]

`scaling_picture.py` plots the output.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import hydra.utils
import numpy as np
import psutil
from footprint import MEGABYTE, mapped, own, peak, reset_peak
from omegaconf import OmegaConf
from workload import shipped_file

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan
from odt_sim.data import Dataset, FederatedData, federate, find_leakage, iid
from odt_sim.observers.base import Observer
from odt_sim.persistence.records import RoundRecord
from odt_sim.settings import Availability, Profiles
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.serial import SerialBackend

EXAMPLES, CLASSES, SHAPE = 4, 10, (4, 4, 1)
WARM_UP = 1  # round
EVALUATED = 100
ZONES = {"America/New_York": 1.0, "Europe/Berlin": 1.0, "Asia/Kolkata": 1.0}
STRATEGIES = Path(__file__).resolve().parents[1] / "conf" / "strategy"


@dataclass(frozen=True)
class Case:
    """A run to measure.

    Attributes:
        devices: Devices of the fleet.
        cohort: Devices per round.
        strategy: Name of a strategy in `conf/strategy`.
        backend: `serial` or `ray`.
        turns: Number of turns.
        rounds: Rounds per turn.
        hidden: Units of the model's hidden layer; 0 for no hidden layer.
        model: The path of the `.tflite` file.
        epochs: Local epochs per round, each of one step.
        availability: A kind of `fleet.availability`, with the shipped profiles; None for a run without a clock.
    """

    devices: int
    cohort: int
    strategy: str
    backend: str
    turns: int
    rounds: int
    hidden: int
    model: str
    epochs: int = 1
    availability: str | None = None

    @property
    def fleet(self) -> Fleet:
        """The settings of the fleet."""
        profiles = Profiles("phones" if self.availability else None)
        availability = Availability(self.availability, time_zones=ZONES if self.availability else None)
        return Fleet(
            self.cohort,
            unseen=self.devices // 10,
            evaluated=EVALUATED,
            profiles=profiles,
            availability=availability,
        )


@dataclass
class Measured:
    """The measurements of a run, in seconds and bytes.

    Attributes:
        setup_seconds: Seconds from the data set to the first round.
        setup_peak: Peak memory of the whole process.
        seconds: Seconds of each round without evaluation.
        cpu_seconds: CPU time of the coordinator's process in each of these rounds.
        evaluation_seconds: Seconds of each round with evaluation.
        coordinator: The coordinator's peak memory in the rounds, without the data set.
        actors: Maximum private memory of each Ray actor over all turns.
        disk: Size of the checkpoint's folder.
    """

    setup_seconds: float = 0.0
    setup_peak: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    evaluation_seconds: list[float] = field(default_factory=list)
    coordinator: int = 0
    actors: dict[str, int] = field(default_factory=dict)
    disk: int = 0


def model_file(hidden: int) -> str:
    """Return the path of a model on 16 features with a gradient offset, which Ditto needs."""
    build = {"_target_": "odt_sim.export.zoo.mlp", "input_shape": list(SHAPE), "classes": CLASSES}
    return str(shipped_file("digits_mlp", build={**build, "hidden": [hidden] if hidden else []}, gradient_offset=True))


def drawn(devices: int) -> Dataset:
    """Return 4 examples per device that a softmax regression can learn."""
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(CLASSES, *SHAPE)).astype(np.float32)
    y = generator.integers(0, CLASSES, EXAMPLES * devices).astype(np.int32)
    x = generator.standard_normal((len(y), *SHAPE), np.float32)
    x += centers[y]
    return Dataset("drawn", x, y, classes=CLASSES)


class Turns(Observer):
    """An observer that measures a run's rounds, one turn per request of the parent."""

    def __init__(self, data: FederatedData, case: Case, started: float) -> None:
        """Record the start of the set-up and the size of the data set."""
        self.measured = Measured()
        late = data.deferred.strata if data.deferred else None
        arrays = {id(a): a.nbytes for a in (data.x, data.y, data.indices, data.offsets, late) if a is not None}
        self._data = sum(arrays.values())
        self._rounds, self._last = case.rounds, case.rounds * case.turns
        self._started, self._cpu = started, time.process_time()

    def on_round(self, record: RoundRecord) -> None:
        """Record the time of a round; at the end of a turn, wait for the next request."""
        seconds, cpu = time.perf_counter() - self._started, time.process_time() - self._cpu
        counted = record["round"] - WARM_UP
        if record["round"] == 1:
            self.measured.setup_seconds = seconds - record["seconds"]
            self.measured.setup_peak = peak()
            reset_peak()
        elif counted > 0 and "accuracy" in record:
            self.measured.evaluation_seconds.append(seconds)
        elif counted > 0:
            self.measured.seconds.append(seconds)
            self.measured.cpu_seconds.append(cpu)
        if 0 <= counted <= self._last and counted % self._rounds == 0:
            self._weigh()
            _wait()
        self._started, self._cpu = time.perf_counter(), time.process_time()

    def _weigh(self) -> None:
        self.measured.coordinator = peak() - mapped() - self._data
        for process in psutil.Process().children(recursive=True):
            if "_Host" in " ".join(process.cmdline()):
                known = self.measured.actors.get(str(process.pid), 0)
                self.measured.actors[str(process.pid)] = max(known, own(process.pid))


def _wait() -> None:
    print("turn", flush=True)
    sys.stdin.readline()


def backend(name: str) -> Executor:
    """Return the backend; Ray is imported only when used."""
    if name == "serial":
        return SerialBackend()
    from odt_sim.simulation.executors.ray import RayBackend

    return RayBackend()


def child(case: Case) -> None:
    """Run a fleet, one turn at a time, and print the measurements."""
    dataset = drawn(case.devices)
    used = backend(case.backend)
    used.start()
    strategy = hydra.utils.instantiate(OmegaConf.load(STRATEGIES / f"{case.strategy}.yaml"))
    reset_peak()
    started = time.perf_counter()
    data = federate(dataset, iid, case.devices, seed=0)
    find_leakage(data)
    turns = Turns(data, case, started)
    with tempfile.TemporaryDirectory() as folder:
        Simulation(
            TrainableModel.load(case.model),
            data,
            strategy,
            rounds=WARM_UP + case.rounds * case.turns + 1,
            directory=Path(folder),
            fleet=case.fleet,
            plan=TrainingPlan(case.epochs, 0.05),
            evaluate_every=2 * case.rounds + 1,
            backend=used,
        ).run(observers=[turns])
        files = (Path(folder) / "checkpoint").rglob("*")
        turns.measured.disk = sum(path.stat().st_size for path in files if path.is_file())
    print(json.dumps(vars(turns.measured)), flush=True)


def run(cases: list[Case]) -> list[Measured]:
    """Run all cases in turns."""
    command = [sys.executable, str(Path(__file__).with_name("scale.py")), "--child"]
    processes = []
    for case in cases:  # set-ups run one by one
        arguments = [*command, json.dumps(vars(case))]
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        _answer(process)
    for _ in range(cases[0].turns):
        for process in processes:
            print(file=process.stdin, flush=True)
            _answer(process)
    return [_end(process) for process in processes]


def _answer(process: "subprocess.Popen[str]") -> None:
    assert process.stdout
    line = process.stdout.readline()
    if line != "turn\n":
        raise SystemExit(f"a run ended early: {line}")


def _end(process: "subprocess.Popen[str]") -> Measured:
    text, _ = process.communicate("\n")
    return Measured(**json.loads(text))


def figures(case: Case, measured: Measured) -> dict[str, float]:
    """Return the measurements of a run by column of the table."""
    milliseconds = [1e3 * statistics.median(s) for s in (measured.seconds, measured.cpu_seconds)]
    return {
        "devices": case.devices,
        "cohort": case.cohort,
        "parameters": parameters(case.hidden),
        "set-up s": measured.setup_seconds,
        "set-up MB": measured.setup_peak / MEGABYTE,
        "round ms": milliseconds[0],
        "CPU ms": milliseconds[1],
        "evaluation ms": 1e3 * statistics.median(measured.evaluation_seconds) - milliseconds[0],
        "coordinator MB": measured.coordinator / MEGABYTE,
        "an actor MB": max(measured.actors.values(), default=0) / MEGABYTE,
        "disk MB": measured.disk / MEGABYTE,
    }


def parameters(hidden: int) -> int:
    """Return the number of parameters of a model with a number of hidden units."""
    inputs = math.prod(SHAPE)
    return hidden * (inputs + 1 + CLASSES) + CLASSES if hidden else (inputs + 1) * CLASSES


def print_table(rows: list[dict[str, float]]) -> None:
    """Print a table with a row per run, and ratios to the first run in parentheses."""
    print(f"| {' | '.join(rows[0])} |\n{'|---' * len(rows[0])}|")
    for row in rows:
        shown = {name: f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for name, value in row.items()}
        for name in ("round ms", "CPU ms", "coordinator MB"):
            shown[name] += f" ({row[name] / rows[0][name]:.2f})"
        print(f"| {' | '.join(shown.values())} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what grows with fleet, cohort and parameters.")
    parser.add_argument("--devices", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--cohort", type=int, nargs="+", default=[100], help="devices of a round")
    parser.add_argument("--hidden", type=int, nargs="+", default=[0], help="units of the hidden layer; 0 for none")
    parser.add_argument("--epochs", type=int, default=1, help="of a device in a round, each of one step")
    parser.add_argument("--strategy", default="fedavg", help="of conf/strategy")
    parser.add_argument("--backend", choices=["serial", "ray"], default="serial")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="of a turn")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(Case(**json.loads(options.child)))
        return
    given = (options.devices, options.cohort, options.hidden)
    runs = max(map(len, given))
    devices, cohorts, hidden = (numbers * runs if len(numbers) == 1 else numbers for numbers in given)
    shared = (options.strategy, options.backend, options.turns, options.rounds)
    cases = [
        Case(*numbers[:2], *shared, numbers[2], model_file(numbers[2]), options.epochs)
        for numbers in zip(devices, cohorts, hidden, strict=True)
    ]
    print(f"{options.strategy}, {options.backend}, load {os.getloadavg()[0]:.1f}", flush=True)
    rows = [figures(case, measured) for case, measured in zip(cases, run(cases), strict=True)]
    print_table(rows)
    if options.output:
        options.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
