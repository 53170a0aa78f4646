"""Results in a benchmark's folder: the comparison of tuned strategies on each task, and their ranks over the tasks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from odt_sim._support.files import write_file
from odt_sim.benchmark.cells import FOLDER, Outcome, read_outcome
from odt_sim.benchmark.ranks import Array, Friedman, critical_difference, friedman, ranks
from odt_sim.errors import CheckpointError
from odt_sim.metrics.names import higher_is_better
from odt_sim.persistence.run_folder import document
from odt_sim.report.columns import COSTS, Column, comparison_columns
from odt_sim.report.comparison import Comparison, Configuration, compare
from odt_sim.report.formatting import over_seeds
from odt_sim.report.pairing import Paired, pair_all, returning_by
from odt_sim.report.significance import FEWEST, Tested, student, units

COMMAND = "command.json"
LEVEL = 0.05
MEAN = "mean"
"""Column by which strategies are ranked: the unweighted mean over seen devices."""


@dataclass(frozen=True)
class TaskResult:
    """Results of a task of a benchmark.

    Attributes:
        name: The name of the task.
        outcomes: The outcome of each strategy.
        comparison: The comparison of the tuned strategies' runs; None if none ran.
    """

    name: str
    outcomes: Mapping[str, Outcome]
    comparison: Comparison | None

    @cached_property
    def rows(self) -> Mapping[str, Configuration]:
        """The runs of each strategy that ran with all seeds."""
        found = self.comparison.rows if self.comparison else ()
        return {row.strategy: row for row in found if self.outcomes[row.strategy].status == "ran"}

    @property
    def metric(self) -> str:
        """The metric by which strategies are compared."""
        assert self.comparison is not None
        return self.comparison.metric

    def value(self, strategy: str, key: str) -> float | None:
        """Return the mean over seeds of a strategy's column; None if it did not run or has no such value."""
        spread = self.rows[strategy].values.get(key) if strategy in self.rows else None
        return None if spread is None else spread.mean

    def devices(self, strategy: str, key: str) -> Sequence[int]:
        """Return the number of devices in a strategy's column for each seed; empty if it did not run."""
        part = {"unseen": "metrics_unseen", "unseen_adapted": "metrics_unseen_adapted"}.get(key, "metrics")
        runs = self.rows[strategy].runs if strategy in self.rows else ()
        figures = [(run.complete.get(part) or {}).get(run.metrics[0]) for run in runs]
        return [int(of_run.get("devices", 0)) if of_run else 0 for of_run in figures]

    def cost(self, strategy: str, key: str) -> float | None:
        """Return the mean over seeds of a cost of `odt_sim.report.columns`; None if unknown or if it did not run."""
        of_run = next(cost.of_run for cost in COSTS if cost.key == key)
        spread = over_seeds(list(map(of_run, self.rows[strategy].runs))) if strategy in self.rows else None
        return None if spread is None else spread.mean

    def column(self, key: str) -> Column:
        """Return a column of the comparison by its key."""
        return next(column for column in comparison_columns((self.metric,)) if column.key == key)

    def ranks(self, strategies: Sequence[str], key: str, seed: int | None = None) -> Array:
        """Return the ranks of strategies by a column, `[strategies]`, over all seeds or by the run of one seed."""
        column = self.column(key)
        if seed is None:
            found = [(self.value(name, key), sum(self.devices(name, key))) for name in strategies]
        else:
            ran = {name: row.runs[seed] for name, row in self.rows.items()}
            found = [
                (column.figure(ran[name]), self.devices(name, key)[seed]) if name in ran else (None, 0)
                for name in strategies
            ]
        values, devices = zip(*found, strict=True)
        known = [np.nan if value is None else value for value in values]
        return ranks(known, higher_is_better=column.higher_is_better is True, devices=devices)

    def interval(self, strategy: str) -> Tested | None:
        """Return the 95 % interval of the mean over devices, over people or seeds as in reports; None with too few."""
        runs = self.rows[strategy].runs
        column = returning_by(runs)
        key = column or "device"
        values = [
            {str(record[key]): float(record[self.metric]) for record in run.devices if _counts(record, self.metric)}
            for run in runs
        ]
        if not all(values):
            return None
        unit, each = units(values, column is not None)
        return student(each, FEWEST[unit])

    @cached_property
    def paired(self) -> Mapping[str, Paired]:
        """The comparison of each strategy with the reference, FedAvg if it ran, with Holm's p over all strategies."""
        return self._pairs()

    def _pairs(self, against: str | None = None) -> Mapping[str, Paired]:
        groups = {row.label: row.runs for row in self.rows.values()}
        selections = {row.label: row.selection for row in self.rows.values()}
        names = {row.label: name for name, row in self.rows.items()}
        return {names[each.label]: each for each in pair_all(groups, selections, against) if each.label in names}

    def against(self, strategy: str) -> int:
        """Return 1 if a strategy is significantly better than the reference, -1 if significantly worse, else 0."""
        return self._significant(self.paired[strategy]) if strategy in self.paired else 0

    def _significant(self, pair: Paired) -> int:
        if pair.p_holm is None or pair.p_holm >= LEVEL or pair.difference is None:
            return 0
        return 1 if (pair.difference > 0) == higher_is_better(self.metric) else -1

    def best(self, key: str) -> str | None:
        """Return the strategy with the best value of a column over the most devices; None if no value is known."""
        sign = 1 if self.column(key).higher_is_better else -1
        values = ((name, self.value(name, key)) for name in self.rows)
        ranked = {name: (sum(self.devices(name, key)), sign * value) for name, value in values if value is not None}
        return max(ranked, key=ranked.__getitem__, default=None)

    def cheapest(self, key: str, among: Sequence[str]) -> str | None:
        """Return the strategy with the lowest cost; None if no cost is known."""
        costs = {name: cost for name in among if (cost := self.cost(name, key)) is not None}
        return min(costs, key=costs.__getitem__, default=None)

    def level_with(self, strategy: str) -> list[str]:
        """Return a strategy, then all that are not significantly worse by the paired test with Holm's adjustment."""
        pairs = self._pairs(self.rows[strategy].label)
        worse = {name for name, pair in pairs.items() if self._significant(pair) < 0}
        return [strategy, *(name for name in self.rows if name != strategy and name not in worse)]


@dataclass(frozen=True)
class Results:
    """Results of a benchmark.

    Attributes:
        folder: The folder of the benchmark.
        command: The command that ran it.
        jobs: The number of parallel processes.
        strategies: All strategies, by name.
        tasks: The tasks on which at least one strategy ran.
    """

    folder: Path
    command: str
    jobs: int
    strategies: Sequence[str]
    tasks: Sequence[TaskResult]

    @cached_property
    def ranked_strategies(self) -> list[str]:
        """The strategies that are ranked, since they can run on every task, best average rank first."""
        tasks = self.tasks
        eligible = [name for name in self.strategies if all(task.outcomes[name].status != "refused" for task in tasks)]
        if not eligible or not tasks:
            return eligible
        average = self._ranks(eligible, MEAN).mean(axis=0)
        return [eligible[place] for place in np.argsort(average, kind="stable")]

    def ranks(self, key: str = MEAN) -> Array:
        """Return the ranks of `ranked_strategies` by a column, `[tasks, strategies]`, for tasks with the column."""
        return self._ranks(self.ranked_strategies, key)

    def _ranks(self, names: Sequence[str], key: str) -> Array:
        tasks = [task for task in self.tasks if any(task.value(name, key) is not None for name in names)]
        return np.array([task.ranks(names, key) for task in tasks]).reshape(-1, len(names))

    def seed_ranks(self) -> Array:
        """Return the average ranks of `ranked_strategies` over tasks by single seeds, `[seeds, strategies]`."""
        names = self.ranked_strategies
        seeds = min((len(row.runs) for task in self.tasks for row in task.rows.values()), default=0)
        averages = [np.mean([task.ranks(names, MEAN, seed) for task in self.tasks], axis=0) for seed in range(seeds)]
        return np.array(averages).reshape(-1, len(names))

    @cached_property
    def friedman(self) -> Friedman | None:
        """The Friedman test over tasks; None with fewer than two tasks or strategies."""
        return friedman(self.ranks())

    @cached_property
    def critical_difference(self) -> float | None:
        """Nemenyi's critical difference of average ranks; None with fewer than two tasks or strategies."""
        few = len(self.tasks) < 2 or len(self.ranked_strategies) < 2
        return None if few else critical_difference(len(self.ranked_strategies), len(self.tasks))

    @property
    def reference(self) -> str:
        """The strategy that others are compared with, FedAvg if it is among them."""
        return "fedavg" if "fedavg" in self.strategies else self.strategies[0]

    def relative(self, strategy: str, key: str) -> float | None:
        """Return a cost relative to the reference's, the geometric mean over tasks with both; None without any."""
        pairs = [(task.cost(strategy, key), task.cost(self.reference, key)) for task in self.tasks]
        ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
        if not ratios:
            return None
        return float(np.exp(np.mean(np.log(ratios)))) if all(ratios) else 0.0

    @property
    def seconds(self) -> float:
        """The total time of all cells."""
        return sum(outcome.seconds for task in self.tasks for outcome in task.outcomes.values())


def read_results(folder: Path, tasks: Sequence[str], strategies: Sequence[str]) -> Results:
    """Read a benchmark from its folder.

    Args:
        folder: The folder.
        tasks: The names of the tasks.
        strategies: The names of the strategies.

    Raises:
        CheckpointError: A file is missing or damaged, or no strategy ran.
    """
    try:
        command = json.loads((folder / COMMAND).read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / COMMAND}: cannot be read; run the benchmark again") from error
    found = [_task(folder / task, strategies) for task in tasks]
    known = [task for task in found if task.rows]
    if not known:
        raise CheckpointError(f"{folder}: no strategy ran on any task; see the logs in {folder}/TASK/{FOLDER}")
    return Results(folder, command["command"], command["jobs"], strategies, known)


def write_command(folder: Path, command: str, jobs: int) -> None:
    """Write the command and the number of processes of a benchmark.

    Raises:
        FileError: It cannot be written.
    """
    write_file(folder / COMMAND, document({"command": command, "jobs": jobs}))


def _task(folder: Path, strategies: Sequence[str]) -> TaskResult:
    outcomes = {}
    for strategy in strategies:
        path = folder / FOLDER / f"{strategy}.json"
        outcome = read_outcome(path)
        if outcome is None:
            raise CheckpointError(f"{path}: does not exist; run the benchmark again")
        outcomes[strategy] = outcome
    runs = [
        folder / "tuned" / f"{name}-trial-{outcome.winner.trial}"
        for name, outcome in outcomes.items()
        if outcome.status == "ran" and outcome.winner
    ]
    return TaskResult(folder.name, outcomes, compare(runs) if runs else None)


def _counts(record: Mapping[str, object], metric: str) -> bool:
    value = record.get(metric)
    return bool(record["seen"]) and isinstance(value, int | float) and bool(np.isfinite(value))
