"""The rounds after which devices are evaluated."""

from dataclasses import dataclass

from odt_sim.persistence.commit import Commit

EVALUATIONS = 10  # number of evaluations of a run by default


@dataclass(frozen=True)
class Cadence:
    """The rounds after which devices are evaluated; the last round is always evaluated.

    Attributes:
        rounds: The maximum number of rounds.
        every: Rounds between two evaluations; None for about ten evaluations, spread over `hours`, or else over the
            run's budget or its rounds.
        hours: Simulated hours after which the run ends; None for no limit.
    """

    rounds: int
    every: int | None = None
    hours: float | None = None

    def due(self, before: Commit, after: Commit, spent: tuple[float, float] = (0.0, 0.0)) -> bool:
        """Return whether devices are to be evaluated after a round.

        Args:
            before: The state before the round.
            after: The state after it.
            spent: The share of the run's budget that was spent before and after the round; 0 without a budget.
        """
        if self.every is None and self.hours is not None:
            return self._tenth(before, self.hours) < self._tenth(after, self.hours)
        if self.every is None and spent[1]:
            shares = (max(part, each.round / self.rounds) for part, each in zip(spent, (before, after), strict=True))
            tenths = [int(share * EVALUATIONS) for share in shares]
            return tenths[0] < tenths[1]
        return after.round % (self.every or max(1, self.rounds // EVALUATIONS)) == 0

    def _tenth(self, commit: Commit, hours: float) -> int:
        time = float(commit.clock["time"][0]) if commit.clock else 0.0
        return int(time * EVALUATIONS / (hours * 3600))
