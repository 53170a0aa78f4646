"""The commits of a run's rounds. Commits overlap with short rounds, and several short rounds share a commit."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from odt_sim.observers.base import Observers
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord

SHORT = 0.1
"""The longest round, in seconds, whose commit may overlap with the next round, or wait to share a later commit.

A commit takes about 3 ms of a core. Observers receive the records of longer rounds immediately.
"""

TOGETHER = 0.25
"""The seconds of waiting rounds after which they are committed: the most work that a killed run repeats.

On a slow disk it may repeat twice as much: these rounds, and those of the commit in flight.
"""

MOST = 64
"""The maximum number of rounds in a commit."""

Write = Callable[[Sequence[RoundRecord]], None]
"""Commits the state after a round, with the records of all rounds since the last commit."""


class _InFlight(NamedTuple):
    """A commit in flight.

    Attributes:
        records: The records of its rounds.
        written: The future of the write.
        waits: Whether all of its rounds could wait, so that later rounds need not wait for it.
    """

    records: list[RoundRecord]
    written: Future[None]
    waits: bool


class Commits:
    """Commits rounds of a run in a thread, and passes their records to observers once they are on disk.

    A killed run loses the round in flight and the rounds that were not on disk: one round, or a few short ones. When
    resumed, it repeats them with the same bits.
    """

    def __init__(self, observers: Observers) -> None:
        """Start no thread yet."""
        self._observers = observers
        self._thread = ThreadPoolExecutor(1, "commit")
        self._waiting: tuple[list[RoundRecord], Write] | None = None
        self._in_flight: _InFlight | None = None

    def begin(self, commit: Commit, record: RoundRecord, write: Write, *, waits: bool) -> bool:
        """Begin to commit a round once the previous commit has ended, or let the round wait for a later commit.

        A round in which devices wrote states is committed at once: syncing them would otherwise wait for the next
        round's.

        Args:
            commit: The state after the round.
            record: The round's record.
            write: Commits the round.
            waits: Whether the round may wait; only a short round does.

        Returns:
            Whether an observer ends the run; False while the commit is in flight or waits.

        Raises:
            FileError: The commit failed.
            OdtSimError: A required observer failed.
        """
        records = [*(self._waiting[0] if self._waiting else ()), record]
        self._waiting = records, write
        overlaps = record.seconds <= SHORT and not commit.versions.written(commit.round)
        enough = len(records) == MOST or sum(each.seconds for each in records) > TOGETHER
        waits = waits and overlaps and self._observers.waits
        if waits and not enough:
            return False
        stopped = self._end()
        self._submit(waits=waits)
        return stopped if overlaps else self._end() or stopped

    def end(self) -> bool:
        """Wait for the commit in flight, if any, and pass its records to observers; return whether one ends the run.

        A commit whose rounds could wait stays in flight: a disk may take as long as many short rounds.

        Raises:
            FileError: The commit failed.
            OdtSimError: A required observer failed.
        """
        in_flight = self._in_flight
        return False if in_flight and in_flight.waits and not in_flight.written.done() else self._end()

    def _end(self) -> bool:
        """Wait for the commit in flight; see `end`."""
        if self._in_flight is None:
            return False
        ended, self._in_flight = self._in_flight, None
        try:
            ended.written.result()
        except BaseException:
            self._waiting = None  # later rounds cannot be committed without the failed ones
            raise
        stops = [self._observers.on_round(record) for record in ended.records]
        return any(stops)

    def end_all(self) -> bool:
        """Wait for the commit in flight, and commit the waiting rounds, too; see `end`."""
        stopped = self._end()
        self._submit(waits=False)
        return self._end() or stopped

    def __enter__(self) -> "Commits":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all commits, even if the next round failed."""
        try:
            self.end_all()
        finally:
            self._thread.shutdown()

    def _submit(self, *, waits: bool) -> None:
        if self._waiting:
            (records, write), self._waiting = self._waiting, None
            self._in_flight = _InFlight(records, self._thread.submit(write, records), waits)
