"""The gap between two jobs of a sweep: from the end of one job to the first blocks of the next.

A sweep of small jobs runs in one process, by `odt-sim run -m` on the Ray backend. Each job ends with its summary. For
the next job, Hydra composes the configuration; the job then partitions its data, finds its model in the cache, reuses
the actors, and submits blocks. The output is the wall-clock time and the coordinator's CPU time, without the first job,
which starts Ray.

    python benchmarks/sweep.py [--jobs 8]
"""

import argparse
import os
import tempfile
import time
from typing import Any

import numpy as np

from odt_sim import Simulation
from odt_sim.cli.main import main as odt_sim
from odt_sim.simulation.executors.ray import RayBackend

Moment = tuple[float, float]


def now() -> Moment:
    """Return the wall-clock time and this process's CPU time in seconds."""
    return time.perf_counter(), time.process_time()


class Listening:
    """A recorder of the jobs of this process.

    Attributes:
        ends: The end of each job.
        begins: The time at which each job submitted its first blocks.
    """

    def __init__(self) -> None:
        """Start recording."""
        self.ends, self.begins = list[Moment](), list[Moment]()
        run, train = Simulation.run, RayBackend.train

        def ending(simulation: Simulation, **options: Any) -> Any:
            try:
                return run(simulation, **options)
            finally:
                self.ends.append(now())

        def beginning(backend: RayBackend, tasks: Any, broadcast: Any) -> Any:
            results = train(backend, tasks, broadcast)
            if tasks[0].round == 1:
                self.begins.append(now())
            return results

        Simulation.run, RayBackend.train = ending, beginning  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how soon the next job of a sweep begins.")
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    listening = Listening()
    with tempfile.TemporaryDirectory() as folder:
        seeds = ",".join(map(str, range(options.jobs)))
        small = ("model=softmax", "strategy=fedavg", "run.rounds=2", f"hydra.sweep.dir={folder}")
        assert odt_sim(["run", "-m", *small, f"seed={seeds}"]) == 0
    gaps = np.subtract(listening.begins[1:], listening.ends[:-1])
    wall, cpu = np.median(gaps, axis=0)
    print(
        f"{len(gaps)} jobs, load {os.getloadavg()[0]:.1f}: from a job's end to the next one's first blocks {wall:.2f} s "
        f"({gaps[:, 0].min():.2f}..{gaps[:, 0].max():.2f}), {cpu:.2f} s of CPU time"
    )


if __name__ == "__main__":
    main()
