"""A run of the command that is killed at random moments, and the results that must not change."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from command_process import COMMAND

GIVEN = ["model=digits_mlp", "fleet.devices=20", "fleet.unseen=4", "train.steps=20"]
SECONDS = 300  # timeout on a busy machine
SET_UP = 8.0  # seconds that a run takes to start, approximately


@dataclass(frozen=True)
class Moment:
    """The time and the victim of a kill.

    Attributes:
        round: The number of rounds recorded before.
        wait: The elapsed fraction, 0 to 1, of the next round, or of the set-up after a restart.
        kind: The victim: `actor`, `coordinator`, `ray` or `node`.
    """

    round: int
    wait: float
    kind: str


def moments(seed: int, rounds: int, times: Mapping[str, int]) -> list[Moment]:
    """Draw moments spread over the rounds, since a device whose actors die five times in one round is excluded."""
    random = np.random.default_rng(seed)
    drawn = []
    for kind, count in times.items():
        chosen = random.permutation(np.arange(count) * (rounds - 1) // count)
        drawn += [Moment(int(round), float(random.random()), kind) for round in chosen]
    return sorted(drawn, key=lambda moment: (moment.round, moment.wait))


class Disturbed:
    """A run that is killed and resumed.

    Attributes:
        folder: The run's folder.
        killed: The victims, in order.
    """

    def __init__(self, folder: Path, overrides: Sequence[str], seed: int, **environment: str) -> None:
        """Start the run.

        Args:
            folder: The run's folder.
            overrides: The run's overrides.
            seed: Decides which actors are killed.
            environment: Further variables of its process.
        """
        self.folder, self.killed = folder, list[str]()
        self._overrides, self._environment = list(overrides), {**os.environ, **environment}
        self._random = np.random.default_rng(seed)
        self._start()

    def rounds(self) -> int:
        """Return the number of recorded rounds, including the one being committed."""
        records = self.folder / "rounds.jsonl"
        return records.read_bytes().count(b"\n") if records.exists() else 0

    def kill(self, moment: Moment) -> None:
        """Wait for a moment, kill the victim, and resume the run if the kill has ended it."""
        self.wait(moment)
        getattr(self, f"_kill_{moment.kind}")()
        self.killed.append(moment.kind)

    def wait(self, moment: Moment) -> None:
        """Wait for a moment."""
        self.wait_for(lambda: self.rounds() >= moment.round)
        seen, until = self.rounds(), time.monotonic() + moment.wait * (0.3 if self._progressed() else SET_UP)
        while time.monotonic() < until and self.rounds() == seen and self._child.poll() is None:
            time.sleep(0.01)

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition holds, and return its value; fail if the run ends."""
        until = time.monotonic() + SECONDS
        while not (found := condition()):
            assert self._child.poll() is None, f"ended early: {self._end()}"
            assert time.monotonic() < until, "no progress"
            time.sleep(0.01)
        return found

    def finish(self) -> None:
        """Wait until the run has succeeded."""
        error = self._end()
        assert self._child.returncode == 0, error

    def close(self) -> None:
        """Kill the run of a failed test."""
        self._child.kill()
        self._child.communicate()

    def _start(self) -> None:
        kept = (self.folder / ".hydra" / "overrides.yaml").exists()
        given = [f"run.resume={self.folder}"] if kept else [*self._overrides, f"hydra.run.dir={self.folder}"]
        self._began = self.rounds()
        self._child = subprocess.Popen(
            [*COMMAND, "run", *given],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def _end(self) -> str:
        """Wait until the process has ended, and return its last line."""
        _, error = self._child.communicate(timeout=SECONDS)
        return (error.strip().splitlines() or ["(no output)"])[-1]

    def _progressed(self) -> bool:
        return self.rounds() > self._began

    def _processes(self, *names: str) -> list[psutil.Process]:
        try:
            return [p for p in psutil.Process(self._child.pid).children(recursive=True) if p.name().startswith(names)]
        except psutil.NoSuchProcess:  # the process has ended meanwhile
            return []

    def _kill_actor(self) -> None:
        actors = self.wait_for(lambda: self._processes("ray::_Host"))
        actors[self._random.integers(len(actors))].kill()

    def _kill_coordinator(self) -> None:
        self._child.kill()
        self._child.communicate()
        self._start()

    def _kill_ray(self) -> None:
        raylet, control = self.wait_for(
            lambda: both if len(both := self._processes("raylet", "gcs_server")) == 2 else None
        )
        raylet.kill()
        control.kill()
        self._end()
        assert self._child.returncode != 0
        self._start()


def outcome(folder: Path) -> dict[str, Any]:
    """Return a run's results without times."""
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    for timed in (summary, *rounds):
        del timed["seconds"]
    checkpoint = folder / "checkpoint"
    files = {str(path.relative_to(checkpoint)): path.read_bytes() for path in checkpoint.rglob("*.safetensors")}
    return {"rounds": rounds, "summary": summary, "devices": (folder / "devices.jsonl").read_bytes(), **files}
