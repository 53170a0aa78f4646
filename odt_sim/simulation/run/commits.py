"""The commits of a run's rounds."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

from odt_sim.observers.base import Observers
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.timeline import TimelineRecord

TOGETHER = 0.25
"""The seconds of rounds that share a commit: the most work that a killed run repeats, besides the round in flight.

A commit takes 3 ms. With one for each round, rounds of a few milliseconds, such as those of a frozen body's head, would take
twice as long.
"""


class Round(NamedTuple):
    """A round to commit.

    Attributes:
        commit: The state after the round.
        record: Its record.
        line: Its line in the timeline; None without a clock.
        best: Whether it validates best so far.
    """

    commit: Commit
    record: RoundRecord
    line: TimelineRecord | None
    best: bool


class Commits:
    """Commits rounds, and passes their records to observers once they are on disk.

    A round is committed at once, or together with the next ones if it is short and nothing refers to it: it is not
    evaluated, is not on the clock, left no states on devices, and no observer may end the run after it.
    """

    def __init__(self, observers: Observers, write: Callable[[Sequence[Round]], None]) -> None:
        """Start with no rounds.

        Args:
            observers: Receive the records.
            write: Writes consecutive rounds, of which only the last one's state is kept.
        """
        self._observers, self._write = observers, write
        self._waiting: list[Round] = []

    def add(self, ended: Round, *, planned: int) -> bool:
        """Commit a round, or let it wait for a later one.

        Args:
            ended: The round.
            planned: The number of rounds of the run. The first round and the last two are committed at once, so that a
                complete run leaves the same files at any speed.

        Returns:
            Whether an observer ends the run.

        Raises:
            FileError: The commit failed.
            OdtSimError: A required observer failed.
        """
        self._waiting.append(ended)
        commit, record = ended.commit, ended.record
        waits = self._observers.waits and 1 < record.round < planned - 1
        waits = waits and ended.line is None and not record.figures and not commit.versions.written(commit.round)
        seconds = sum(each.record.seconds for each in self._waiting)
        return False if waits and seconds <= TOGETHER else self.end()

    def end(self) -> bool:
        """Commit the rounds that wait; return whether an observer ends the run.

        Raises:
            FileError: The commit failed.
            OdtSimError: A required observer failed.
        """
        ended, self._waiting = self._waiting, []
        if ended:
            self._write(ended)
        stops = [self._observers.on_round(each.record) for each in ended]
        return any(stops)

    def __enter__(self) -> "Commits":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit the rounds that wait, even if the next round failed."""
        self.end()
