"""The cost of each strategy's own computations, in addition to the training that it requests.

Every strategy of `conf/strategy` trains the CNN of `peers.py` in this process, on a cohort of 10 devices with 96
examples each, for one epoch with batches of 32. A round consists of the cohort's `local` and the server's `aggregate`;
a deployment is `deploy` on the same devices, with 32 validation examples. Strategies take turns, so that other load
affects all alike. The output is the median CPU time of the turns.

The time is split into:

- model: LiteRT calls that train, infer or embed, and one write and one read of the weights per device, as FedAvg needs.
- disk: loading and saving of device states, including checksums.
- own: the rest: orders and batches, sums of updates and `aggregate`, as in FedAvg; each additional read or write of
  weights; and each gradient offset.

    python benchmarks/strategies.py [STRATEGY ...] [--turns 7] [--plain]

The model is exported with a gradient offset and with all capabilities that the strategy needs (`Strategy.needed`). With
`--plain`, it is exported as in `conf/model/mnist_cnn.yaml`: the host adds gradient offsets, and strategies that need
more are left out.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import hydra.utils
import numpy as np
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table
from workload import random_images

from odt_sim import Device, Fleet, TrainableModel, TrainingPlan
from odt_sim.cli.hydra.build import model as built
from odt_sim.cli.hydra.overrides import composed
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.engines.interpreter import InterpreterEngine
from odt_sim.device.examples import Examples
from odt_sim.device.runtime import Runtime
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.errors import StrategyError
from odt_sim.model.tensors import read_only
from odt_sim.persistence.device_states import DeviceStore, RoundStates
from odt_sim.persistence.storage import Folder
from odt_sim.persistence.versions import Versions
from odt_sim.simulation.executors.job import Job, Task
from odt_sim.simulation.executors.worker import Worker
from odt_sim.simulation.run.messages import Messages
from odt_sim.simulation.run.sums import join, mean
from odt_sim.strategies.base import ServerState, Strategy

STRATEGIES = Path(__file__).resolve().parents[1] / "conf" / "strategy"
COHORT, EXAMPLES, HELD_OUT = 10, 96, 32
FIRST_ROUND, WARM_UP = 10, 2  # IFCA's devices choose clusters after round 5
NEEDED = ("parameters", "restore")  # FedAvg needs them once per device
OWN = (*NEEDED, "set_gradient_offset")
TRAINING = ("train", "head_train")


@dataclass(frozen=True)
class Part:
    """The CPU time of one round or deployment.

    Attributes:
        model: Milliseconds in LiteRT.
        disk: Milliseconds for device states.
        own: Milliseconds of everything else.
        steps: Number of training steps.
    """

    model: float
    disk: float
    own: float
    steps: int

    @property
    def fraction(self) -> float:
        """The strategy's own fraction of the time, not counting disk."""
        return self.own / (self.model + self.own)


class Meter:
    """A meter that splits the CPU time of work into parts."""

    def __init__(self) -> None:
        """Instrument all interpreters and stores of the process."""
        self._seconds, self._calls = Counter[str](), Counter[str]()
        self._listen(InterpreterEngine, "call", lambda signature, **_: signature)
        self._listen(DeviceStore, "load", lambda *_: "disk")
        self._listen(RoundStates, "add", lambda *_: "disk")
        self._listen(RoundStates, "write", lambda *_: "disk")

    def _listen(self, owner: type, method: str, name: Callable[..., str]) -> None:
        inner = getattr(owner, method)

        def timed(instance: Any, *arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return inner(instance, *arguments, **named)
            finally:
                key = name(*arguments, **named)
                self._seconds[key] += time.process_time() - started
                self._calls[key] += 1

        setattr(owner, method, timed)

    def measure(self, work: Callable[[], object]) -> Part:
        """Run work for the cohort and return the parts of its time."""
        self._seconds.clear()
        self._calls.clear()
        started = time.process_time()
        work()
        total = time.process_time() - started
        disk = self._seconds.pop("disk", 0.0)
        model = sum((seconds for name, seconds in self._seconds.items() if name not in OWN), 0.0)
        model += sum(self._seconds[name] * min(1.0, COHORT / max(1, self._calls[name])) for name in NEEDED)
        steps = sum(count for name, count in self._calls.items() if name.startswith(TRAINING))
        return Part(1e3 * model, 1e3 * disk, 1e3 * (total - model - disk), steps)


class Run:
    """Consecutive rounds of a strategy on the cohort."""

    def __init__(self, strategy: Strategy, model: TrainableModel, data: FederatedData, folder: Path) -> None:
        """Run the warm-up rounds."""
        self._strategy = strategy
        self._model, self._data, self._plan = model, data, TrainingPlan(1, 0.01)
        self._job = Job(model, data, strategy, self._plan, 0, Folder(folder), Fleet())
        self._worker = Worker(self._job)
        self._pool, self._store = RuntimePool(model), DeviceStore(Folder(folder), model)
        self._state: ServerState = strategy.init(Runtime(model).initial)
        self._next, self._versions = FIRST_ROUND, Versions()
        for _ in range(WARM_UP):
            self.round()
        self.deploy()

    def round(self) -> None:
        """Train the cohort and aggregate."""
        task = Task("train", self._next, tuple(range(COHORT)), self._versions.of(range(COHORT)))
        messages = Messages(self._job, self._state)
        trained = join([self._worker.run(messages.addressed(task), read_only(messages.broadcast))])
        assert len(trained.contributed) == COHORT
        self._state = self._strategy.aggregate(self._state, mean(trained, COHORT))
        self._versions = self._versions.after(self._next, trained.stateful)
        self._next += 1

    def deploy(self) -> None:
        """Deploy to the cohort."""
        x, y = self._data.x, self._data.y
        versions, messages = self._versions.of(range(COHORT)), Messages(self._job, self._state)
        for id in range(COHORT):
            train, validation = (Examples(x, y, part(id)) for part in (self._data.train, self._data.validation))
            device = Device(
                self._model, train, validation, id=id, round=self._next - 1, plan=self._plan, pool=self._pool
            )
            device.state = self._store.load(id, versions.get(id))
            self._strategy.deploy(device, messages.received(id))
            device.release()


def fleet() -> FederatedData:
    """Return the cohort's data: random images that a model can learn."""
    size = EXAMPLES + 2 * HELD_OUT
    x, y = random_images(COHORT * size)
    starts = np.arange(COHORT) * size
    offsets = np.stack([starts, starts + EXAMPLES, starts + EXAMPLES + HELD_OUT, starts + size], axis=1)
    return FederatedData("benchmark", x, y, 10, np.arange(len(x)), offsets)


@contextmanager
def runs_of(names: list[str], *, plain: bool) -> Iterator[dict[str, Run]]:
    """Yield a run per strategy; print why others are left out."""
    data = fleet()
    config = composed(["model=mnist_cnn"])
    config.model = {**config.model, "gradient_offset": not plain}
    with tempfile.TemporaryDirectory() as folder:
        runs = {}
        for name in names:
            strategy = hydra.utils.instantiate(OmegaConf.load(STRATEGIES / f"{name}.yaml"))
            model = built(config, strategy=None if plain else strategy)
            try:
                strategy.check(model)
            except StrategyError as error:
                print(f"left out: {error}", flush=True)
            else:
                runs[name] = Run(strategy, model, data, Path(folder) / name)
        yield runs


def median(parts: list[Part]) -> Part:
    """Return the median of each attribute."""
    model, disk, own = (float(np.median([getattr(part, name) for part in parts])) for name in ("model", "disk", "own"))
    return Part(model, disk, own, parts[0].steps)


def table_of(rounds: dict[str, Part], deployments: dict[str, Part]) -> Table:
    """Return a table with a row per strategy; `times FedAvg` is the ratio to FedAvg's model and own time per step."""
    table = Table("strategy", "steps", "model, ms", "own, ms", "own part", "times FedAvg", "disk, ms")
    for title in ("deployment: steps", "model, ms", "own, ms", "own part"):
        table.add_column(title)
    base = (rounds["fedavg"].model + rounds["fedavg"].own) / rounds["fedavg"].steps
    for name, part in rounds.items():
        cells = [f"{part.steps}", f"{part.model:.0f}", f"{part.own:.1f}", f"{part.fraction:.1%}"]
        cells += [f"{(part.model + part.own) / (base * part.steps):.2f}", f"{part.disk:.1f}"]
        end = deployments[name]
        fraction = f"{end.fraction:.1%}" if end.model else ""
        table.add_row(name, *cells, f"{end.steps}", f"{end.model:.0f}", f"{end.own:.1f}", fraction)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what strategies cost beside the training they ask for.")
    found = sorted(path.stem for path in STRATEGIES.glob("*.yaml"))
    parser.add_argument("strategies", nargs="*", default=found, metavar="STRATEGY")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--plain", action="store_true", help="the model as conf/model describes it")
    options = parser.parse_args()
    names = ["fedavg", *(name for name in options.strategies if name != "fedavg")]
    with runs_of(names, plain=options.plain) as runs:
        meter = Meter()
        turns = [
            {name: (meter.measure(run.round), meter.measure(run.deploy)) for name, run in runs.items()}
            for _ in range(options.turns)
        ]
    rounds, deployments = ({name: median([turn[name][i] for turn in turns]) for name in runs} for i in (0, 1))
    print(f"{options.turns} turns, load {os.getloadavg()[0]:.1f}")
    Console(width=150).print(table_of(rounds, deployments))


if __name__ == "__main__":
    main()
