"""The metric of each configuration at equal budgets of rounds, training steps and megabytes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from odt_sim.metrics.names import higher_is_better
from odt_sim.metrics.units import significant
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run import Run
from odt_sim.report.comparison import Comparison
from odt_sim.report.formatting import Spread, over_seeds

_ROUNDING = 1e-9


@dataclass(frozen=True)
class AtBudget:
    """The configurations at one budget.

    Attributes:
        unit: The unit of the budget.
        limit: The smallest total cost of a run that spends anything.
        values: The weighted mean of the metric after the last evaluated round within the limit, over seeds, by label;
            None if a seed has no such round.
        best: The labels with the best value on each data; none if more than half share it.
    """

    unit: str
    limit: float
    values: dict[str, Spread | None]
    best: frozenset[str]

    @property
    def title(self) -> str:
        """The heading of the column."""
        whole = f"{self.limit:,.0f}" if self.limit >= 100 or float(self.limit).is_integer() else significant(self.limit)
        return f"at {whole}\n{self.unit}"


BUDGETS: Mapping[str, Callable[[RoundRecord], float | None]] = {
    "rounds": lambda record: 1.0,
    "training steps": lambda record: record.train_calls,
    "MB": lambda record: (record.bytes_down + record.bytes_up) / 1e6,
}
"""The cost of a round by the cost's unit; None if unknown."""


def equal_budgets(comparison: Comparison) -> list[AtBudget]:
    """Return the configurations at each budget that is known for all; empty for a single configuration.

    Configurations that a search's pruner ended are left out, because they would determine the limit.
    """
    found = [_at(comparison, unit) for unit in BUDGETS] if len(comparison.unpruned) > 1 else []
    return [at for at in found if at and any(at.values.values())]


def _at(comparison: Comparison, unit: str) -> AtBudget | None:
    spent = {id(run): _spent(run, unit, comparison.metric) for row in comparison.unpruned for run in row.runs}
    totals = [points[-1][0] if points else None for points in spent.values()]
    if None in totals or not any(totals):
        return None
    limit = min(total for total in totals if total)  # runs that spend nothing are within any budget
    values: dict[str, Spread | None] = {}
    for row in comparison.unpruned:
        within = [[score for total, score in spent[id(run)] if total <= limit * (1 + _ROUNDING)] for run in row.runs]
        values[row.label] = over_seeds([scores[-1] for scores in within]) if all(within) else None
    best = comparison.best(values, higher_is_better=higher_is_better(comparison.metric))
    return AtBudget(unit, limit, values, best)


def _spent(run: Run, unit: str, metric: str) -> Sequence[tuple[float, float]]:
    """Return a run's total cost after each evaluated round, and the metric; empty if a round's cost is unknown."""
    costs = [BUDGETS[unit](record) for record in run.rounds]
    if None in costs:
        return []
    totals = np.cumsum(np.array(costs, np.float64)).tolist()
    pairs = zip(totals, run.rounds, strict=True)
    return [(total, record[metric]) for total, record in pairs if record.get(metric) is not None]
