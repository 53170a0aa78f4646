"""The commits of a run's rounds, which overlap with short rounds; several of these are committed together."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from odt_sim.observers.base import Observers
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord

SHORT = 0.1
"""The most seconds of a round whose commit overlaps with the next one, or waits for that of a later one.

A commit takes about 3 ms of a core. Observers get the records of longer rounds at once.
"""

TOGETHER = 0.25
"""The seconds of rounds after which those that wait are committed: what a run that dies repeats at most.

On a slow disk it may repeat twice as much: these rounds, and those of the commit in flight.
"""

MOST = 64
"""The most rounds of a commit."""

Write = Callable[[Sequence[RoundRecord]], None]
"""Commits the state after a round, with the records of all rounds since the last commit."""


class _InFlight(NamedTuple):
    """A commit that was begun.

    Attributes:
        records: The records of its rounds.
        written: Ends with it.
        waits: Whether all of its rounds could wait, so that later ones need not wait for it.
    """

    records: list[RoundRecord]
    written: Future[None]
    waits: bool


class Commits:
    """Commits the rounds of a run in a thread, and gives observers the records of rounds once they are on disk.

    A run that dies loses the round that it trains and what was not on disk, a round or some short ones; resumed, it repeats
    them with the same bits.
    """

    def __init__(self, observers: Observers) -> None:
        """Start no thread yet."""
        self._observers = observers
        self._thread = ThreadPoolExecutor(1, "commit")
        self._waiting: tuple[list[RoundRecord], Write] | None = None
        self._in_flight: _InFlight | None = None

    def begin(self, commit: Commit, record: RoundRecord, write: Write, *, waits: bool) -> bool:
        """Begin to commit a round once the commit before has ended, or let it wait for a later one.

        A round in which devices wrote states is committed at once: their sync would wait for the next round's states.

        Args:
            commit: The state after the round.
            record: The round's record.
            write: Commits the round.
            waits: Whether the round may wait; it does only if it is short.

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
        """End the commit in flight, if any, and give observers its records; return whether one of them ends the run.

        A commit of rounds that could wait goes on: a disk may take as long as many short rounds.

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
            self._waiting = None  # later rounds cannot be committed without these
            raise
        stops = [self._observers.on_round(record) for record in ended.records]
        return any(stops)

    def end_all(self) -> bool:
        """Wait for the commit in flight, and commit the rounds that wait, too; see `end`."""
        stopped = self._end()
        self._submit(waits=False)
        return self._end() or stopped

    def __enter__(self) -> "Commits":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all commits, also where the next round failed."""
        try:
            self.end_all()
        finally:
            self._thread.shutdown()

    def _submit(self, *, waits: bool) -> None:
        if self._waiting:
            (records, write), self._waiting = self._waiting, None
            self._in_flight = _InFlight(records, self._thread.submit(write, records), waits)
