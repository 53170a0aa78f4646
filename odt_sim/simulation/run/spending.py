"""When a run evaluates its devices, and what it has spent of its budget."""

from collections.abc import Iterable
from dataclasses import dataclass

from odt_sim.metrics.units import significant
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord
from odt_sim.settings import Budget

EVALUATIONS = 10  # number of evaluations of a run by default
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Spending:
    """The costs of the rounds so far, with the budget.

    Attributes:
        budget: The limits of the run.
        steps: Training steps of the cohorts.
        bytes: Bytes that the cohorts received and sent.
    """

    budget: Budget
    steps: int = 0
    bytes: int = 0

    def after(self, records: Iterable[RoundRecord]) -> "Spending":
        """Return the costs including those of further rounds."""
        steps, traffic = self.steps, self.bytes
        for record in records:
            steps += record.train_calls or 0
            traffic += record.bytes_down + record.bytes_up
        return Spending(self.budget, steps, traffic)

    @property
    def share(self) -> float:
        """The spent share of the scarcer budget, above 1 if a round exceeded it; 0 without a budget."""
        limits = ((self.steps, self.budget.steps), (self.bytes / MEGABYTE, self.budget.megabytes))
        return max((spent / limit for spent, limit in limits if limit is not None), default=0.0)

    @property
    def reason(self) -> str | None:
        """The reason for ending the run; None while no budget is spent."""
        if self.budget.steps is not None and self.steps >= self.budget.steps:
            return f"run.budget.steps: {self.steps:,} of {self.budget.steps:,} training steps"
        if self.budget.megabytes is not None and self.bytes >= self.budget.megabytes * MEGABYTE:
            return f"run.budget.megabytes: {significant(self.bytes / MEGABYTE)} of {self.budget.megabytes:,g} megabytes"
        return None


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
            times = (float(commit.clock["time"][0]) if commit.clock else 0.0 for commit in (before, after))
            tenths = [int(time * EVALUATIONS / (self.hours * 3600)) for time in times]
            return tenths[0] < tenths[1]
        if self.every is None and spent[1]:
            shares = (max(part, each.round / self.rounds) for part, each in zip(spent, (before, after), strict=True))
            tenths = [int(share * EVALUATIONS) for share in shares]
            return tenths[0] < tenths[1]
        return after.round % (self.every or max(1, self.rounds // EVALUATIONS)) == 0
