"""Incremental reading of `rounds.jsonl` while a run appends to it."""

import json
from pathlib import Path
from typing import NamedTuple

from odt_sim.metrics.names import first_metric
from odt_sim.persistence.records import RoundRecord


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
