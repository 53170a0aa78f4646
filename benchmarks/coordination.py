"""The cost of coordination: updates per second on a backend, compared with bare loops in as many processes.

Both train the same `.tflite` file on the same devices for the same number of steps, and take turns. A turn of the
simulation (FedAvg, with rounds committed as in a command) consists of rounds after its first and before its last; with
`auto`, they include the rounds in which it compares backends. The bare loops run after the simulation, while its
workers are idle. A bare loop uses only LiteRT: it restores the weights, takes three steps on fixed batches, and reads
the weights, without shuffling, sums or synchronization at the end of a round. Loops that are compared with Ray have the
niceness of Ray's workers, so that other load slows both alike.

The CPU time of each kind of process is also measured, since it is more reliable than wall-clock time on a loaded
machine.

The last measurement, with Ray, is the cost of a device without training: a cohort of 1,000 devices that train nothing,
with a model of 650 parameters.

    python benchmarks/coordination.py [--backend ray processes auto] [--cohort 10] [--repetitions 11] [--seconds 2]
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray
from workload import fleet_of, random_images, shipped_model

from odt_sim import Device, Fleet, Simulation, TrainableModel, TrainingPlan, Weights
from odt_sim.data.devices.federated import FederatedData
from odt_sim.observers.base import Observer
from odt_sim.persistence.records import RoundRecord
from odt_sim.simulation.executors.auto import AutoBackend
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.base import ServerState, Tensors, Update, Updates, weights_of

DEVICES, EXAMPLES, LEARNING_RATE = 100, 96, 0.05
EMPTY = 1000  # devices that train nothing
WARM_UP = 3  # rounds
WORKER_NICENESS = 15  # Ray's niceness for its workers
BACKENDS: dict[str, Callable[[int], Executor]] = {
    "ray": lambda workers: RayBackend(actors=workers),
    "processes": ProcessesBackend,
    "auto": lambda workers: AutoBackend(),
}

MARKS: list[tuple[float, Counter[str]]] = []  # times at the ends of marked rounds; global, as Ray copies strategies


class Bare:
    """Processes that each train a share of the devices in a loop with one interpreter."""

    def __init__(self, model: TrainableModel, data: FederatedData, processes: int, niceness: int) -> None:
        """Start the processes, before any measurement."""
        spawn = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        for _ in range(processes):
            ours, theirs = spawn.Pipe()
            arguments = (theirs, niceness, model.content, model.batch_size, data.x, data.y)
            spawn.Process(target=_loop, args=arguments, daemon=True).start()
            self._pipes.append(ours)
        self._ask([[0]] * processes)  # wait until they have started

    def seconds(self, devices: list[int]) -> float:
        """Return the seconds that it takes to train each device once."""
        count = len(self._pipes)
        started = time.perf_counter()
        self._ask([devices[i::count] for i in range(count)])
        return time.perf_counter() - started

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(None)

    def _ask(self, shares: list[list[int]]) -> None:
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send(share)
        for pipe in self._pipes:
            pipe.recv()


def _loop(
    pipe: Connection, niceness: int, content: bytes, batch: int, x: NDArray[np.float32], y: NDArray[np.int32]
) -> None:
    from ai_edge_litert.interpreter import Interpreter

    os.nice(niceness)
    interpreter = Interpreter(model_content=content, num_threads=1)
    train, restore, parameters = map(interpreter.get_signature_runner, ("train", "restore", "parameters"))
    initial = {name: array.copy() for name, array in parameters().items()}
    weight, rate = np.ones(batch, np.float32), np.float32(LEARNING_RATE)
    while (share := pipe.recv()) is not None:
        for device in share:
            restore(**initial)
            for start in range(device * EXAMPLES, (device + 1) * EXAMPLES, batch):
                rows = slice(start, start + batch)
                train(x=x[rows], y=y[rows], sample_weight=weight, learning_rate=rate)
            parameters()
        pipe.send(None)


def cpu_seconds() -> Counter[str]:
    """Return the CPU time used so far, by kind of process."""
    own = psutil.Process()
    seconds, times = Counter[str](), own.cpu_times()
    seconds["coordinator"] += times.user + times.system
    for process in own.children(recursive=True):
        with suppress(psutil.Error):  # the process has ended
            command = " ".join(process.cmdline())
            kind = "bare loops" if "spawn_main" in command else "actors" if "_Host" in command else "Ray"
            kind = "helpers" if process.cmdline() == own.cmdline() else kind
            times = process.cpu_times()
            seconds[kind] += times.user + times.system
    return seconds


class TrainsNothing(FedAvg):
    """FedAvg without training: each update is zero."""

    def local(self, device: Device, broadcast: Tensors) -> Update:
        return Update({"weights": Weights.zeros(weights_of(broadcast).layout)}, 1.0, np.zeros(0, np.float32))


class Marked(FedAvg):
    """FedAvg that marks the ends of two rounds, without an observer, so that rounds are committed as in a command."""

    def __init__(self, first: int, last: int) -> None:
        self._marked, self._rounds = (first, last), 0

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Mark the end of a round if it is one of the two."""
        self._rounds += 1
        if self._rounds in self._marked:
            MARKS.append((time.perf_counter(), cpu_seconds()))
        return super().aggregate(state, updates)


class Turns:
    """Alternating turns of rounds of a simulation and of as many devices in the bare loops.

    Attributes:
        coordinated: Updates per second of each turn of the simulation.
        bare: Updates per second of each turn of the bare loops.
        coordinated_cpu: CPU seconds of the simulation's turns, by kind of process.
        bare_cpu: CPU seconds of the bare loops' turns.
    """

    def __init__(self, bare: Bare, cohort: int, rounds: int) -> None:
        """Set the sizes.

        Args:
            bare: The bare loops.
            cohort: Devices per round.
            rounds: Rounds per turn.
        """
        self._loops = bare
        self._devices = [device % DEVICES for device in range(cohort * rounds)]
        self.coordinated: list[float] = []
        self.bare: list[float] = []
        self.coordinated_cpu, self.bare_cpu = Counter[str](), Counter[str]()

    def add_marked(self) -> None:
        """Add a turn of the simulation from the two marked rounds."""
        (started, before), (ended, after) = MARKS
        MARKS.clear()
        self.coordinated.append(len(self._devices) / (ended - started))
        self.coordinated_cpu += after - before

    def train_bare(self) -> None:
        """Run a turn of the bare loops."""
        before = cpu_seconds()
        self.bare.append(len(self._devices) / self._loops.seconds(self._devices))
        self.bare_cpu += cpu_seconds() - before

    def milliseconds(self, cpu: Counter[str]) -> dict[str, float]:
        """Return the CPU milliseconds per update, by kind of process."""
        updates = len(self._devices) * len(self.bare)
        return {kind: 1e3 * seconds / updates for kind, seconds in cpu.most_common()}


def measure(name: str, cohort: int, repetitions: int, seconds: float, processes: int) -> Turns:
    """Return the turns of a backend and a cohort size; a turn takes about `seconds`."""
    model, data = shipped_model("mnist_cnn"), fleet_of(*random_images(DEVICES * EXAMPLES), DEVICES)
    bare = Bare(model, data, processes, WORKER_NICENESS if name == "ray" else 0)
    devices = list(range(max(10, processes)))
    bare.seconds(devices)
    rounds = max(1, round(seconds / (bare.seconds(devices) / len(devices) * cohort)))
    turns, backend = Turns(bare, cohort, rounds), BACKENDS[name](processes)
    total = WARM_UP + rounds + 1  # the last round is evaluated, so it is not measured
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            Simulation(
                model,
                data,
                Marked(WARM_UP, WARM_UP + rounds),
                rounds=total,
                directory=Path(folder),
                fleet=Fleet(cohort),
                plan=TrainingPlan(1, LEARNING_RATE),
                evaluate_every=total,
                backend=backend,
            ).run(observers=[])
        turns.add_marked()
        turns.train_bare()
    bare.close()
    return turns


def print_turns(name: str, cohort: int, processes: int, turns: Turns) -> None:
    """Print the medians and the breakdown of the CPU time."""
    ratios = np.divide(turns.coordinated, turns.bare)
    low, high = np.quantile(ratios, [0.25, 0.75])
    print(f"{name}, cohort {cohort}, {processes} workers, {len(ratios)} turns each, load {os.getloadavg()[0]:.1f}")
    print(f"  updates/s: {name} {np.median(turns.coordinated):.1f}, bare loops {np.median(turns.bare):.1f} (medians)")
    print(f"  ratio {np.median(ratios):.3f} (quartiles {low:.3f}..{high:.3f})")
    coordinated, bare = turns.milliseconds(turns.coordinated_cpu), turns.milliseconds(turns.bare_cpu)
    parts = ", ".join(f"{kind} {value:.2f}" for kind, value in coordinated.items())
    whole, loops = sum(coordinated.values()), bare["bare loops"]
    print(f"  CPU ms an update: {whole:.2f} ({parts}), bare loops {loops:.2f}; ratio {loops / whole:.3f}", flush=True)


def print_empty(repetitions: int, processes: int) -> None:
    """Print the cost of a device without training: wall-clock time with all processes busy, and their CPU time."""
    x = np.random.default_rng(0).standard_normal((EMPTY, 8, 8, 1), np.float32)
    wall, cpu = [time.perf_counter()], [sum(cpu_seconds().values())]

    class Clock(Observer):
        def on_round(self, record: RoundRecord) -> None:
            wall.append(time.perf_counter())
            cpu.append(sum(cpu_seconds().values()))

    total = WARM_UP + repetitions + 1  # the last round is evaluated
    with tempfile.TemporaryDirectory() as folder:
        Simulation(
            shipped_model("softmax"),
            fleet_of(x, np.arange(EMPTY, dtype=np.int32) % 10, EMPTY),
            TrainsNothing(),
            rounds=total,
            directory=Path(folder),
            evaluate_every=total,
            backend=RayBackend(actors=processes),
        ).run(observers=[Clock()])
    milliseconds = [1e3 * np.median(np.diff(times)[WARM_UP:-1]) / EMPTY for times in (wall, cpu)]
    print(f"an empty device, cohort {EMPTY}: {milliseconds[0]:.3f} ms, {milliseconds[1]:.3f} ms of CPU time")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what coordination costs.")
    parser.add_argument("--backend", nargs="+", default=list(BACKENDS), choices=list(BACKENDS))
    parser.add_argument("--cohort", type=int, nargs="+", default=[10, 100], help="devices of a round")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=2.0, help="about how long one turn is")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="actors or processes, and bare loops")
    options = parser.parse_args()
    given = options.repetitions, options.seconds, options.processes
    for name in options.backend:
        for cohort in options.cohort:
            print_turns(name, cohort, options.processes, measure(name, cohort, *given))
    if "ray" in options.backend:
        print_empty(options.repetitions, options.processes)


if __name__ == "__main__":
    main()
