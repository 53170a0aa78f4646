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
from odt_sim.persistence.run import Run
from odt_sim.persistence.run_folder import document
from odt_sim.report.comparison import Comparison, Configuration, compare
from odt_sim.report.comparison_columns import comparison_columns
from odt_sim.report.costs import COSTS
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

    def devices(self, strategy: str, key: str) -> int:
        """Return the number of devices in a strategy's column, summed over seeds; 0 if it did not run."""
        return sum(_devices(run, key) for run in self.rows[strategy].runs) if strategy in self.rows else 0

    def cost(self, strategy: str, key: str) -> float | None:
        """Return the mean over seeds of a cost of `odt_sim.report.costs`; None if unknown or if it did not run."""
        of_run = next(cost.of_run for cost in COSTS if cost.key == key)
        spread = over_seeds(list(map(of_run, self.rows[strategy].runs))) if strategy in self.rows else None
        return None if spread is None else spread.mean

    def higher(self, key: str) -> bool:
        """Return whether larger values of a column are better."""
        return next(
            column.higher_is_better is True for column in comparison_columns((self.metric,)) if column.key == key
        )

    def interval(self, strategy: str) -> Tested | None:
        """Return the 95 % interval of the mean over devices, over people or seeds as in reports; None with too few."""
        runs = self.rows[strategy].runs
        column = returning_by(runs)
        key = column or "device"
        counted = [[record for record in run.devices if _counts(record, self.metric)] for run in runs]
        values = [{str(record[key]): float(record[self.metric]) for record in records} for records in counted]
        if not all(values):
            return None
        unit, each = units(values, column is not None)
        return student(each, FEWEST[unit])

    @cached_property
    def paired(self) -> Mapping[str, Paired]:
        """The comparison of each strategy with the reference, FedAvg if it ran, with Holm's p over all strategies."""
        labels = {row.label: name for name, row in self.rows.items()}
        return {labels[each.label]: each for each in _pairs(self.rows) if each.label in labels}

    def against(self, strategy: str) -> int:
        """Return 1 if a strategy is significantly better than the reference, -1 if significantly worse, else 0."""
        found = self.paired.get(strategy)
        if found is None or found.p_holm is None or found.p_holm >= LEVEL or found.difference is None:
            return 0
        return 1 if (found.difference > 0) == higher_is_better(self.metric) else -1

    def best(self, key: str) -> str | None:
        """Return the strategy with the best value of a column over the most devices; None if no value is known."""
        sign = 1 if self.higher(key) else -1
        values = ((name, self.value(name, key)) for name in self.rows)
        known = {name: (self.devices(name, key), sign * value) for name, value in values if value is not None}
        return max(known, key=known.__getitem__, default=None)

    def cheapest(self, key: str, among: Sequence[str]) -> str | None:
        """Return the strategy with the lowest cost; None if no cost is known."""
        known = {name: cost for name in among if (cost := self.cost(name, key)) is not None}
        return min(known, key=known.__getitem__, default=None)

    def level_with(self, strategy: str) -> list[str]:
        """Return a strategy, then all that are not significantly worse by the paired test with Holm's adjustment."""
        found = _pairs(self.rows, self.rows[strategy].label)
        worse = {
            each.label
            for each in found
            if each.p_holm is not None
            and each.p_holm < LEVEL
            and each.difference is not None
            and (each.difference < 0) == higher_is_better(self.metric)
        }
        return [strategy, *(name for name, row in self.rows.items() if name != strategy and row.label not in worse)]


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
        eligible = self._eligible
        if not eligible or not self.tasks:
            return eligible
        average = self._ranks(eligible, MEAN).mean(axis=0)
        return [eligible[place] for place in np.argsort(average, kind="stable")]

    @property
    def _eligible(self) -> list[str]:
        return [each for each in self.strategies if all(task.outcomes[each].status != "refused" for task in self.tasks)]

    def ranks(self, key: str = MEAN) -> Array:
        """Return the ranks of `ranked_strategies` by a column, `[tasks, strategies]`, for tasks with the column."""
        return self._ranks(self.ranked_strategies, key)

    def _ranks(self, strategies: Sequence[str], key: str) -> Array:
        values = [(task, [task.value(each, key) for each in strategies]) for task in self.tasks]
        return np.array(
            [
                ranks(
                    [np.nan if value is None else value for value in of_task],
                    higher_is_better=task.higher(key),
                    devices=[task.devices(each, key) for each in strategies],
                )
                for task, of_task in values
                if any(value is not None for value in of_task)
            ]
        ).reshape(-1, len(strategies))

    def seed_ranks(self) -> Array:
        """Return the average ranks of `ranked_strategies` over tasks by single seeds, `[seeds, strategies]`."""
        seeds = range(min((len(row.runs) for task in self.tasks for row in task.rows.values()), default=0))
        found = [
            [
                ranks(
                    [_of_seed(task, each, seed) for each in self.ranked_strategies],
                    higher_is_better=task.higher(MEAN),
                    devices=[
                        _devices(task.rows[each].runs[seed], MEAN) if each in task.rows else 0
                        for each in self.ranked_strategies
                    ],
                )
                for task in self.tasks
            ]
            for seed in seeds
        ]
        return np.array(found).mean(axis=1) if found else np.empty((0, len(self.ranked_strategies)))

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
        known = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
        if not known:
            return None
        return float(np.exp(np.mean(np.log(known)))) if all(known) else 0.0

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


def _pairs(rows: Mapping[str, Configuration], against: str | None = None) -> Sequence[Paired]:
    groups = {row.label: row.runs for row in rows.values()}
    return pair_all(groups, {row.label: row.selection for row in rows.values()}, against)


def _counts(record: Mapping[str, object], metric: str) -> bool:
    value = record.get(metric)
    return bool(record["seen"]) and isinstance(value, int | float) and bool(np.isfinite(value))


def _devices(run: Run, key: str) -> int:
    """Return the number of devices in the value of a run's column."""
    part = {"unseen": "metrics_unseen", "unseen_adapted": "metrics_unseen_adapted"}.get(key, "metrics")
    figures = (run.complete.get(part) or {}).get(run.metrics[0])
    return int(figures.get("devices", 0)) if figures else 0


def _of_seed(task: TaskResult, strategy: str, seed: int) -> float:
    if strategy not in task.rows:
        return np.nan
    row = task.rows[strategy]
    column = next(column for column in comparison_columns((task.metric,)) if column.key == MEAN)
    spread = over_seeds([column.figure(row.runs[seed])])
    return np.nan if spread is None else spread.mean
