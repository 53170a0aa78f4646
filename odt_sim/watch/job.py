"""Job as shown on the live page, read from its run folder."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odt_sim.errors import CheckpointError
from odt_sim.metrics.units import significant
from odt_sim.persistence.run import Run, load_run
from odt_sim.persistence.run_folder import FAILURE, ROUNDS, SUMMARY
from odt_sim.report.formatting import UNKNOWN, score
from odt_sim.report.style import axis_unit, percent_factor
from odt_sim.watch.rounds_file import Round, RoundsFile

HYDRA = Path(".hydra")
CONFIGURATION = ("config.yaml", "hydra.yaml", "overrides.yaml")
FILES = (Path(SUMMARY), Path(FAILURE), *(HYDRA / name for name in CONFIGURATION))

PACE_ROUNDS = 20
"""Number of last rounds over which the seconds per round are averaged."""

SILENT_SECONDS, SILENT_ROUNDS = 60.0, 10
"""A job is silent if no round has ended for this many seconds and for the duration of this many rounds."""

START_SECONDS = 900.0
"""A job without a round is silent after this time, since exporting a model may take minutes."""

POINTS = 300
"""Maximum number of points of a curve."""


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
            "changed": self._changed(),
            "error": self._failure() if state == "failed" else None,
            "curve": _thinned([(each.number, _on_axis(each)) for each in evaluated]),
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

    def _failure(self) -> str | None:
        return self._error or (self.run.error if self.run else None)

    def _changed(self) -> float | None:
        return max((each for each in (*self._versions, self._rounds.changed) if each is not None), default=None)


def _changed(path: Path) -> float | None:
    """Return when a file was last changed, in seconds since 1970; None if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _on_axis(evaluated: Round) -> float:
    assert evaluated.metric is not None
    assert evaluated.value is not None
    return percent_factor(evaluated.metric) * evaluated.value


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _thinned(points: Sequence[Any]) -> list[Any]:
    """Return at most `POINTS` of the points, always including the last."""
    step = -(-len(points) // POINTS) or 1
    return [*points[::-1][::step]][::-1]
