"""The cost of committing a round with device states, by the size of the fleet, without training.

Each round draws a cohort, looks up the versions of its states, and commits new versions. Every 50th commit becomes the
best one, which is kept for the report. The output is the CPU time of a round, the bytes written per commit, the growth
of memory since the first round, and the CPU time of resuming from the last commit.

    python benchmarks/commits.py [--devices 1000 100000 1000000] [--cohort 100] [--rounds 3000] [--folder /dev/shm]
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table
from workload import shipped_model

from odt_sim import TrainableModel
from odt_sim.persistence.checkpoint import Checkpoint
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.device_states import pack_state, state_names
from odt_sim.persistence.storage import Folder
from odt_sim.persistence.versions import Versions
from odt_sim.simulation.run.cohort import blocks, choose_cohort
from odt_sim.strategies.base import ServerState

REPORTED = 50


@dataclass(frozen=True)
class CountingFolder(Folder):
    """A folder that counts the bytes written to it."""

    sizes: list[int] = field(default_factory=list)

    def replace(self, name: str, content: bytes) -> None:
        self.sizes.append(len(content))
        super().replace(name, content)

    def add(self, name: str, content: bytes) -> None:
        self.sizes.append(len(content))
        super().add(name, content)


def row(model: TrainableModel, devices: int, cohort: int, rounds: int, folder: Path) -> list[str]:
    """Run the commits of a fleet and return a row of the table."""
    storage, seen = CountingFolder(folder), np.arange(devices)
    checkpoint, commit = Checkpoint(storage, model, {}), Commit(0, ServerState({}), Versions(), {})
    checkpoint.begin(commit, None, None)
    before, seconds, written = psutil.Process().memory_info().rss, [], []
    for round in range(1, rounds + 1):
        drawn = choose_cohort(seen, cohort, 0, round).tolist()
        files = {device: block[0] for block in blocks(drawn) for device in block}
        storage.sizes.clear()
        started = time.process_time()
        commit.versions.of(drawn)
        commit = Commit(round, commit.state, commit.versions.after(round, files), {})
        checkpoint.write(commit, best=round % REPORTED == 0)
        seconds.append(time.process_time() - started)
        written.append(sum(storage.sizes))
    memory = psutil.Process().memory_info().rss - before
    for name in state_names(commit.versions.files):  # resuming checks that all files exist
        storage.add(name, pack_state(name, {}, model, {}))
    started = time.process_time()
    again = Checkpoint(storage, model, {})
    again.look()
    last = again.read(print, lambda commit: None)
    assert last is not None
    again.begin(last, rounds // REPORTED * REPORTED, (rounds - 1) // REPORTED * REPORTED or None)
    again.clean()
    resumed = time.process_time() - started
    stateful = len(last.versions.of(range(devices)))
    cells = [f"{1e3 * np.median(seconds):.1f}", f"{1e3 * max(seconds):.0f}", f"{np.median(written) / 1e3:.0f}"]
    cells += [f"{np.mean(written) / 1e3:.0f}", f"{max(written) / 1e3:.0f}", f"{memory / 1e6:.0f}", f"{resumed:.1f}"]
    return [f"{devices:,}", f"{stateful:,}", *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what committing a round costs.")
    parser.add_argument("--devices", type=int, nargs="*", default=[1000, 100_000, 1_000_000])
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--folder", default=None, help="where to write; a temporary folder by default")
    options = parser.parse_args()
    model = shipped_model("softmax")
    table = Table(
        "devices", "with a state", "CPU, ms", "most", "kB written", "mean", "most", "memory, MB", "going on, s"
    )
    for devices in options.devices:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            table.add_row(*row(model, devices, options.cohort, options.rounds, Path(folder)))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
