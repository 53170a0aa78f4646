"""The metric of each configuration at equal budgets of rounds, training steps and megabytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from odt_sim.metrics.names import higher_is_better
from odt_sim.metrics.units import significant
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run import Run
from odt_sim.report.comparison import Comparison, Configuration, best_mean
from odt_sim.report.formatting import Spread, over_seeds

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Budget:
    """A cost that accumulates over rounds.

    Attributes:
        unit: The unit.
        of_round: Returns the cost of a round; None if unknown.
    """

    unit: str
    of_round: Callable[[RoundRecord], float | None]


@dataclass(frozen=True)
class AtBudget:
    """The configurations at one budget.

    Attributes:
        budget: The cost.
        limit: The smallest total cost of a run that spends anything.
        values: The weighted mean of the metric after the last evaluated round within the limit, over seeds, by label;
            None if a seed has no such round.
        best: The labels with the best value on each data; none if more than half share it.
    """

    budget: Budget
    limit: float
    values: dict[str, Spread | None]
    best: frozenset[str]

    @property
    def title(self) -> str:
        """The heading of the column."""
        whole = f"{self.limit:,.0f}" if self.limit >= 100 or float(self.limit).is_integer() else significant(self.limit)
        return f"at {whole}\n{self.budget.unit}"


BUDGETS = (
    Budget("rounds", lambda record: 1.0),
    Budget("training steps", lambda record: record.train_calls),
    Budget("MB", lambda record: (record.bytes_down + record.bytes_up) / 1e6),
)


def equal_budgets(comparison: Comparison) -> list[AtBudget]:
    """Return the configurations at each budget that is known for all; empty for a single configuration.

    Configurations that a search's pruner ended are left out, because they would determine the limit.
    """
    found = [_at(comparison, budget) for budget in BUDGETS] if len(comparison.unpruned) > 1 else []
    return [at for at in found if at and any(at.values.values())]


def _at(comparison: Comparison, budget: Budget) -> AtBudget | None:
    spent = {id(run): _spent(run, budget, comparison.metric) for row in comparison.unpruned for run in row.runs}
    totals = [points[-1][0] if points else None for points in spent.values()]
    if None in totals or not any(totals):
        return None
    limit = min(total for total in totals if total)  # runs that spend nothing are within any budget
    values = {row.label: _value(row, limit, spent) for row in comparison.unpruned}
    on_each = ({row.label: values.get(row.label) for row in rows} for rows in comparison.by_data)
    best = frozenset(label for of_data in on_each for label in _best(of_data, comparison.metric))
    return AtBudget(budget, limit, values, best)


def _spent(run: Run, budget: Budget, metric: str) -> Sequence[tuple[float, float]]:
    """Return a run's total cost after each evaluated round, and the metric; empty if a round's cost is unknown."""
    costs = [budget.of_round(record) for record in run.rounds]
    if None in costs:
        return []
    totals = np.cumsum(np.array(costs, np.float64)).tolist()
    pairs = zip(totals, run.rounds, strict=True)
    return [(total, record[metric]) for total, record in pairs if record.get(metric) is not None]


def _value(row: Configuration, limit: float, spent: dict[int, Sequence[tuple[float, float]]]) -> Spread | None:
    within = [[score for total, score in spent[id(run)] if total <= limit * (1 + _ROUNDING)] for run in row.runs]
    return over_seeds([scores[-1] for scores in within]) if all(within) else None


def _best(values: dict[str, Spread | None], metric: str) -> list[str]:
    means = {label: spread.mean for label, spread in values.items() if spread}
    best = best_mean([*means.values()], higher_is_better=higher_is_better(metric))
    return [label for label, mean in means.items() if mean == best]
