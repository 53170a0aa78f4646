"""An observer that kills the coordinator, and an observer that records the events of a run."""

from collections.abc import Sequence

from odt_sim.observers.base import Observer, RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.summary import Summary
from odt_sim.testing import DeathError, DiesInRound

__all__ = ["DeathError", "DiesAfterRound", "DiesInRound", "Recorder"]


class DiesAfterRound(Observer):
    """An observer that ends the coordinator after the commit of a round."""

    def __init__(self, round: int) -> None:
        self._round = round

    def on_round(self, record: RoundRecord) -> None:
        if record["round"] == self._round:
            raise DeathError


class Recorder(Observer):
    """An observer that records its calls.

    Attributes:
        runs: The arguments of `on_begin`.
        records: The records of the rounds.
        warnings: The warnings.
        ends: The arguments of `on_end`.
    """

    def __init__(self, stop_after: int | None = None) -> None:
        self.runs: list[RunInfo] = []
        self.records: list[RoundRecord] = []
        self.warnings: list[str] = []
        self.ends: list[Summary | None] = []
        self._stop_after = stop_after

    @property
    def rounds(self) -> Sequence[int]:
        return [record["round"] for record in self.records]

    def on_begin(self, run: RunInfo) -> bool:
        self.runs.append(run)
        return any(record["round"] == self._stop_after for record in run.recorded)

    def on_round(self, record: RoundRecord) -> bool:
        self.records.append(record)
        return record["round"] == self._stop_after

    def on_warning(self, message: str) -> None:
        self.warnings.append(message)

    def on_end(self, summary: Summary | None) -> None:
        self.ends.append(summary)
