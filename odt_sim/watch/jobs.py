"""Jobs below a folder, as shown on the live page; each is read from its run folder while the run writes it."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from odt_sim.errors import CheckpointError
from odt_sim.metrics.names import first_metric
from odt_sim.metrics.units import significant
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run import Run, find_started_runs, load_run
from odt_sim.persistence.run_folder import FAILURE, ROUNDS, SUMMARY
from odt_sim.report.formatting import UNKNOWN, score
from odt_sim.report.run_settings import written_differences
from odt_sim.report.style import axis_unit, colors_of, percent_factor

INTERVAL = 0.5
"""Seconds for which read data are reused, so that many open pages cause no additional reads."""

FILES = (SUMMARY, FAILURE, *(f".hydra/{name}.yaml" for name in ("config", "hydra", "overrides")))

PACE_ROUNDS = 20
"""Number of last rounds over which the seconds per round are averaged."""

SILENT_SECONDS, SILENT_ROUNDS = 60.0, 10
"""A job is silent if no round has ended for this many seconds and for the duration of this many rounds."""

START_SECONDS = 900.0
"""A job without a round is silent after this time, since exporting a model may take minutes."""

POINTS = 300
"""Maximum number of points of a curve."""


class Sweep:
    """Runs below a folder; their folders are only read, never written or locked.

    Attributes:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        """Set the folder; nothing is read yet."""
        self.folder = folder
        self._jobs: dict[Path, Job] = {}
        self._labels: Mapping[Path, str] = {}
        self._shown: list[dict[str, Any]] = []
        self._read_at = -INTERVAL
        self._lock = Lock()

    def jobs(self) -> list[dict[str, Any]]:
        """Return `Job.shown` of all jobs, in natural order of their folders; this is thread-safe."""
        with self._lock:
            if time.monotonic() - self._read_at >= INTERVAL:
                self._read()
                self._read_at = time.monotonic()
            return self._shown

    def _read(self) -> None:
        before = self._jobs
        self._jobs = {path: before.get(path) or Job(path) for path in find_started_runs(self.folder)}
        changed = [job.read() for job in self._jobs.values()]
        if any(changed) or self._jobs.keys() != before.keys():
            known = [job for job in self._jobs.values() if job.run]
            written = written_differences([job.run for job in known if job.run])
            self._labels = {job.path: text for job, text in zip(known, written, strict=True)}
        colors = colors_of(job.name for job in self._jobs.values())
        self._shown = [
            job.shown(self._labels.get(path, ""), colors[job.name], os.path.relpath(path, self.folder))
            for path, job in self._jobs.items()
        ]


class Job:
    """Run folder that is read repeatedly.

    Attributes:
        path: The run's folder.
        run: Its records and configuration as last read; None if none could be read.
    """

    def __init__(self, path: Path) -> None:
        """Set the folder; nothing is read yet."""
        self.path = path
        self.run: Run | None = None
        self._rounds = RoundsFile(path / ROUNDS)
        self._versions: Sequence[float | None] = ()
        self._error: str | None = None

    def read(self) -> bool:
        """Read new data, and return whether the job ended, failed, was resumed or was configured."""
        versions = [_changed(self.path / name) for name in FILES]
        changed = versions != self._versions
        if changed:
            self._versions, self._error = versions, None
            try:
                self.run = load_run(self.path)  # before the rounds, since it registers their user-defined metrics
            except CheckpointError as error:
                self._error = str(error)
        self._rounds.read()
        return changed

    def shown(self, label: str, colour: str, identity: str) -> dict[str, Any]:
        """Return the data that the page shows, as plain values for JSON.

        Args:
            label: The differences from other jobs of the strategy.
            colour: The colour of the strategy.
            identity: The unique id of the job.
        """
        rounds = self._rounds.rounds
        evaluated = [each for each in rounds if each.value is not None]
        pace = _mean([each.seconds for each in rounds[-PACE_ROUNDS:]])
        state, total = self._state(pace), self._total()
        left = (total - len(rounds)) * pace if state == "running" and total is not None and pace is not None else None
        metric = evaluated[-1].metric if evaluated else None
        return {
            "id": identity,
            "label": label,
            "strategy": self.name,
            "colour": colour,
            "state": state,
            "round": len(rounds),
            "rounds": total,
            "metric": None if metric is None else axis_unit(metric),
            "score": UNKNOWN if metric is None else score(evaluated[-1].value, metric),
            "loss": UNKNOWN if not rounds or rounds[-1].loss is None else significant(rounds[-1].loss),
            "pace": pace,
            "left": left,
            "changed": max((t for t in (*self._versions, self._rounds.changed) if t is not None), default=None),
            "error": (self._error or (self.run.error if self.run else None)) if state == "failed" else None,
            "curve": _thinned(evaluated),
        }

    @property
    def name(self) -> str:
        """The name of the strategy; the folder's name if it is unknown."""
        rounds = self._rounds.rounds
        return rounds[-1].strategy if rounds else self.run.name if self.run else self.path.name

    def _state(self, pace: float | None) -> str:
        summary, failure, config, *_ = self._versions
        if self._error is not None:
            return "failed"
        if summary is not None:
            return "complete"
        since = self._rounds.changed
        if failure is not None and failure >= (since or 0):  # a resumed run keeps its record until it is complete
            return "failed"
        quiet = time.time() - (since or config or 0)
        if not self._rounds.rounds:
            return "silent" if quiet > START_SECONDS else "starting"
        if quiet > max(SILENT_SECONDS, SILENT_ROUNDS * (pace or 0)):
            return "silent"
        total = self._total()
        return "evaluating" if total is not None and len(self._rounds.rounds) >= total else "running"

    def _total(self) -> int | None:
        if self.run and self.run.summary:
            return self.run.summary.rounds
        settings: Mapping[str, Any] = self.run.config if self.run else {}
        rounds = (settings.get("run") or {}).get("rounds")
        return rounds if isinstance(rounds, int) else None


def _changed(path: Path) -> float | None:
    """Return when a file was last changed, in seconds since 1970; None if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _thinned(evaluated: "Sequence[Round]") -> list[tuple[int, float]]:
    """Return the points of the curve of evaluated rounds: at most `POINTS`, always including the last."""
    step = -(-len(evaluated) // POINTS) or 1
    shown = [*evaluated[::-1][::step]][::-1]
    return [(each.number, percent_factor(each.metric or "") * (each.value or 0.0)) for each in shown]


class Round(NamedTuple):
    """Data of a round for the page.

    Attributes:
        number: The number of the round, from 1.
        strategy: Name of the strategy.
        loss: Mean training loss, or None.
        seconds: Wall-clock time.
        metric: The first metric of the round's evaluation, or None if it was not evaluated.
        value: The metric's weighted mean over the seen devices, or None.
    """

    number: int
    strategy: str
    loss: float | None
    seconds: float
    metric: str | None
    value: float | None


class RoundsFile:
    """Rounds in a file; each read parses only new lines.

    A resumed run replaces the file by one without the rounds after its last commit; the new file is read from the
    start.

    Attributes:
        rounds: The rounds of all complete lines.
        changed: When the file was last changed, in seconds since 1970; None if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        """Set the path of the file, which need not exist."""
        self.rounds: list[Round] = []
        self.changed: float | None = None
        self._path, self._file, self._offset = path, (0, 0), 0

    def read(self) -> None:
        """Read new lines."""
        try:
            with self._path.open("rb") as file:
                status = self._path.stat()
                if (status.st_dev, status.st_ino) != self._file or status.st_size < self._offset:
                    self.rounds, self._file, self._offset = [], (status.st_dev, status.st_ino), 0
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]
        except OSError:
            self.rounds, self.changed, self._file, self._offset = [], None, (0, 0), 0
            return
        self.changed = status.st_mtime
        if whole:
            self._offset += len(whole) + 1
            self.rounds += [found for line in whole.split(b"\n") if (found := _round(line))]


def _round(line: bytes) -> Round | None:
    """Return the round of a line; None for a damaged line, which reports name."""
    try:
        record = RoundRecord.of(json.loads(line))
    except (ValueError, TypeError, AttributeError):
        return None
    metric = first_metric(record.figures)
    value = None if metric is None else record.figures[metric]
    return Round(record.round, record.strategy, record.train_loss, record.seconds, metric, value)
