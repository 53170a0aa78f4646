"""Sweeps as subprocesses of the command, several at a time, with a progress line for each."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from odt_sim._support.system import environment
from odt_sim.errors import FileError
from odt_sim.persistence.run_folder import FAILURE, SUMMARY, SWEEP

WORKER = (sys.executable, "-m", "odt_sim.cli.tune_worker")
LOG = "log.txt"
SECONDS_TO_END = 60  # after SIGTERM


@dataclass(frozen=True)
class Sweep:
    """Sweep to run or to resume.

    Attributes:
        name: The name in the progress line.
        arguments: The arguments of `odt-sim run -m`.
        folder: The sweep's folder; the output goes to `log.txt` in it.
        jobs: The number of its jobs.
    """

    name: str
    arguments: Sequence[str]
    folder: Path
    jobs: int

    def start(self) -> subprocess.Popen[bytes]:
        """Start or resume the sweep, in a process that ends with this one.

        Raises:
            FileError: The sweep's folder cannot be written.
        """
        place = place_of(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / LOG).open("ab") as log:
                command = [*WORKER, str(os.getpid()), "run", "-m", *self.arguments, place]
                return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment({}))
        except OSError as error:
            raise FileError(
                f"{self.folder}: cannot be written ({error.strerror}); choose another folder: output=DIR"
            ) from error

    def done(self) -> int:
        """Return the number of jobs that have ended."""
        return len({path.parent for name in (SUMMARY, FAILURE) for path in self.folder.glob(f"*/{name}")})


def place_of(folder: Path) -> str:
    """Return the argument with which a sweep starts in a folder, or resumes if the folder already contains it."""
    return f"run.resume={folder}" if (folder / SWEEP).is_file() else f"hydra.sweep.dir={folder}"


def run_sweeps(title: str, sweeps: Sequence[Sweep], at_once: int) -> None:
    """Run sweeps until they end; a failure is only recorded in the files of their folders.

    Args:
        title: The beginning of each line.
        sweeps: The sweeps.
        at_once: The number of sweeps that run at the same time.
    """
    waiting, running = list(sweeps), dict[str, subprocess.Popen[bytes]]()
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks = {each.name: progress.add_task(f"{title} {each.name}", total=each.jobs, start=False) for each in sweeps}
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    sweep = waiting.pop(0)
                    progress.start_task(tasks[sweep.name])
                    running[sweep.name] = sweep.start()
                time.sleep(0.2)
                running = {name: each for name, each in running.items() if each.poll() is None}
                for each in sweeps:
                    progress.update(tasks[each.name], completed=each.done())
        finally:
            _end(running)


def _end(running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    for process in running.values():
        process.terminate()
    for process in running.values():
        try:
            process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
