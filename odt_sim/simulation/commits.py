"""The commits of a run's rounds, which overlap with short rounds."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from odt_sim.observers.base import Observers
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord

SHORT = 0.05
"""The most seconds of a round whose commit overlaps with the next one; observers get the records of others at once."""


class Commits:
    """Commits one round at a time in a thread, and gives observers the record of a round once its commit is on disk.

    A run that dies loses the round that it trains and at most the one before; resumed, it repeats them with the same bits.
    """

    def __init__(self, observers: Observers) -> None:
        """Start no thread yet."""
        self._observers = observers
        self._thread = ThreadPoolExecutor(1, "commit")
        self._in_flight: tuple[RoundRecord, Future[None]] | None = None

    def begin(self, commit: Commit, record: RoundRecord, write: Callable[[], None]) -> bool:
        """Begin to commit a round; that of the round before must have ended.

        A round in which devices wrote states is committed at once: their sync would wait for the next round's states.

        Args:
            commit: The state after the round.
            record: The round's record.
            write: Commits the round.

        Returns:
            Whether an observer ends the run; False while the commit is in flight.

        Raises:
            FileError: The commit failed.
            OdtSimError: A required observer failed.
        """
        assert self._in_flight is None
        self._in_flight = record, self._thread.submit(write)
        overlaps = record.seconds <= SHORT and not commit.versions.written(commit.round)
        return False if overlaps else self.end()

    def end(self) -> bool:
        """Wait for the commit in flight, if any, and give observers its record; return whether one of them ends the run.

        Raises:
            FileError: The commit failed.
            OdtSimError: A required observer failed.
        """
        if self._in_flight is None:
            return False
        (record, written), self._in_flight = self._in_flight, None
        written.result()
        return self._observers.on_round(record)

    def __enter__(self) -> "Commits":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the commit in flight, also where the next round failed."""
        try:
            self.end()
        finally:
            self._thread.shutdown()
