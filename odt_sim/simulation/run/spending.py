"""The training steps and megabytes that a run has spent of its budget."""

from collections.abc import Iterable
from dataclasses import dataclass

from odt_sim.metrics.units import significant
from odt_sim.persistence.records import RoundRecord
from odt_sim.settings import Budget

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
