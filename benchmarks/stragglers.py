"""Idle time of cores because of slow blocks: a round with blocks of tenfold difference, compared with equal blocks.

Both rounds train the CNN of `peers.py` on the Ray backend, in turns, with 16 blocks of 2 devices and the same number of
steps. In the uneven round, a quarter of the blocks, drawn at random for each turn, has devices with ten times the
examples of the others. Without idle time, both rounds would take equally long.

    python benchmarks/stragglers.py [--repetitions 11]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from workload import random_images, shipped_model

from odt_sim import Fleet, TrainingPlan
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.runtime import Runtime
from odt_sim.persistence.storage import Folder
from odt_sim.simulation.executors.job import Job, Task
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.simulation.run.messages import Assignment, Messages
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.base import ServerState

BLOCKS, DEVICES, BATCH = 16, 2, 32
SMALL, LARGE = 2, 20  # steps of a device
EVEN = (SMALL * 3 + LARGE) / 4


def fleet(turns: int) -> FederatedData:
    """Return devices that share examples: those of the even round, then those of each turn's uneven round."""
    generator = np.random.default_rng(0)
    steps = [np.tile([6, 7], BLOCKS * DEVICES // 2)]  # EVEN: 6.5 steps per device
    for _ in range(turns):
        blocks = generator.permutation([LARGE] * (BLOCKS // 4) + [SMALL] * (BLOCKS - BLOCKS // 4))
        steps.append(np.repeat(blocks, DEVICES))
    sizes = np.concatenate(steps) * BATCH
    x, y = random_images(LARGE * BATCH + 1)
    own = [np.append(np.arange(size), len(x) - 1) for size in sizes]
    ends = np.cumsum(sizes + 1)
    offsets = np.stack([ends - sizes - 1, ends - 1, ends - 1, ends], axis=1)
    return FederatedData("stragglers", x, y, 10, np.concatenate(own), offsets)


def tasks(round: int, first: int) -> Sequence[Task]:
    """Return the tasks of a round's blocks, starting with device `first`."""
    return [
        Task("train", round, tuple(range(start, start + DEVICES)))
        for start in range(first, first + BLOCKS * DEVICES, DEVICES)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure whether slow blocks idle the other cores.")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    assert EVEN == 6.5
    model, strategy, backend = shipped_model("mnist_cnn"), FedAvg(), RayBackend(actors=options.processes)
    broadcast = strategy.init(Runtime(model).initial).broadcast
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        data = fleet(options.repetitions)
        job = Job(model, data, strategy, TrainingPlan(1, 0.05), 0, Folder(Path(folder)), Fleet())
        backend.open(job)

        def seconds(round: int, first: int) -> float:
            started = time.perf_counter()
            backend.run(Assignment(tasks(round, first), Messages(job, ServerState(broadcast))), lambda block: None)
            return time.perf_counter() - started

        seconds(1, 0)
        for turn in range(options.repetitions):
            even, uneven = seconds(2 * turn + 2, 0), seconds(2 * turn + 3, BLOCKS * DEVICES * (turn + 1))
            ratios.append(even / uneven)
        backend.close()
    low, high = np.quantile(ratios, [0.25, 0.75])
    print(f"{options.processes} actors, {len(ratios)} turns, load {os.getloadavg()[0]:.1f}")
    print(
        f"time of equal blocks / of blocks that differ 10 times: {np.median(ratios):.3f} (quartiles {low:.3f}..{high:.3f})"
    )


if __name__ == "__main__":
    main()
