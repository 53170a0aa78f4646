"""Compare runs: a row per configuration with its seeds merged, and every device joined with its local-only model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.metrics.names import is_metric
from odt_sim.metrics.rounds import check_target, still_improves
from odt_sim.persistence.run import Run, find_runs, load_run
from odt_sim.report.columns import Column, comparison_columns
from odt_sim.report.formatting import Spread, over_seeds
from odt_sim.report.gains import HURT_COLUMNS, Hurt, hurt_devices, join_local, training_key
from odt_sim.report.grouping import group_runs, with_common_models
from odt_sim.report.pairing import Paired, pair_all
from odt_sim.report.run_settings import data_key, written_differences
from odt_sim.report.selection import Selection, select, selected_only


@dataclass(frozen=True)
class Configuration:
    """One row of the comparison: runs that differ only in their seed.

    Attributes:
        label: The strategy, and the overrides and settings in which the compared runs differ.
        runs: A run per seed, with `local_<metric>` of every device if the comparison has a local-only run.
        values: The figure of each column, by the column's key; None if unknown.
        selection: The selection in which the configuration was a candidate.
    """

    label: str
    runs: tuple[Run, ...]
    values: Mapping[str, Spread | None]
    selection: Selection

    @property
    def chosen(self) -> bool:
        """Whether this configuration was selected among several of its strategy."""
        return self.selection.candidates > 1 and self.selection.label == self.label

    @cached_property
    def pruned(self) -> Sequence[int]:
        """The rounds after which a search's pruner ended the runs, ascending; empty if it ended none."""
        return sorted(run.complete.rounds for run in self.runs if run.pruned)

    @cached_property
    def improving(self) -> bool | None:
        """Whether at least half of the runs were still improving at their end; None if unknown for all, or if pruned."""
        if self.pruned:
            return None
        found = [still_improves(run.rounds, run.chosen_by) for run in self.runs]
        known = [each for each in found if each is not None]
        return 2 * sum(known) >= len(known) if known else None

    @cached_property
    def hurt(self) -> Mapping[str, Hurt | None]:
        """The devices that a reference would serve better, by the column's key; None if unknown."""
        return {key: hurt_devices(self.runs, name, unseen=unseen) for key, (name, unseen) in HURT_COLUMNS.items()}

    @property
    def strategy(self) -> str:
        """The name of the strategy."""
        return self.runs[0].name


@dataclass(frozen=True)
class Failure:
    """A run that ended early, or that has damaged records.

    Attributes:
        label: The strategy, the seed and the differing overrides.
        path: The run's folder.
        error: The reason, in one line.
    """

    label: str
    path: Path
    error: str


@dataclass(frozen=True)
class Comparison:
    """A comparison of runs.

    Attributes:
        metric: The metric of the comparison.
        target: The value of the metric to which rounds are counted; None without a target.
        rows: The configurations in the order of their folders.
        paired: The comparison of each configuration with its reference, device by device.
        failures: The failed runs; a run that failed after it was complete has a row, too.
    """

    metric: str
    target: float | None
    rows: tuple[Configuration, ...]
    paired: tuple[Paired, ...]
    failures: tuple[Failure, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics of the runs' task."""
        return tuple(dict.fromkeys([self.metric, *(metric for run in self.runs for metric in run.metrics)]))

    @property
    def runs(self) -> tuple[Run, ...]:
        """All complete runs."""
        return tuple(run for row in self.rows for run in row.runs)

    @property
    def unpruned(self) -> tuple[Configuration, ...]:
        """The configurations that no pruner ended: only these can be the best, or count in equal budgets."""
        return tuple(row for row in self.rows if not row.pruned)

    @cached_property
    def by_data(self) -> tuple[tuple[Configuration, ...], ...]:
        """The configurations, grouped by data, partition and fleet: figures of different groups do not compare."""
        groups: dict[object, list[Configuration]] = {}
        for row in self.rows:
            groups.setdefault(data_key(row.runs[0]), []).append(row)
        return tuple(map(tuple, groups.values()))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns with a figure in at least one row, and rounds to the target if there is a target."""
        return tuple(
            column
            for column in comparison_columns(self.metrics, self.target)
            if any(row.values[column.key] for row in self.rows)
            or (column.key == "rounds_to_target" and self.target is not None)
        )

    def best(self, values: Mapping[str, Spread | None], *, higher_is_better: bool) -> frozenset[str]:
        """Return the configurations, of those that no pruner ended, with the best mean on each data.

        Args:
            values: A figure by configuration; None if unknown.
            higher_is_better: Whether larger is better.

        Returns:
            Their labels; none on data on which more than half share the best mean.
        """
        labels = set[str]()
        for rows in self.by_data:
            means = {row.label: figure.mean for row in rows if not row.pruned and (figure := values.get(row.label))}
            best = (max if higher_is_better else min)(means.values(), default=None)
            winners = {label for label, mean in means.items() if mean == best}
            labels |= winners if len(winners) <= len(means) / 2 else set()
        return frozenset(labels)

    def is_best(self, row: Configuration, column: Column) -> bool:
        """Return whether a configuration has the best mean of a column on its data."""
        if column.higher_is_better is None:
            return False
        values = {other.label: other.values[column.key] for other in self.rows}
        return row.label in self.best(values, higher_is_better=column.higher_is_better)


def compare(folders: Sequence[Path], **options: Any) -> Comparison:
    """Compare all runs at or below folders.

    Args:
        folders: Run folders, or folders that contain runs.
        **options: The options of `compare_runs`.

    Raises:
        CheckpointError: A folder is missing or contains no run.
        ConfigurationError: The runs have different tasks, there is no validation figure to select by or no such
            reference or metric, or the target is out of range.
    """
    runs, damaged = [], []
    for path in find_runs(folders):
        try:
            runs.append(load_run(path))
        except CheckpointError as error:
            damaged.append(Failure(path.name, path, str(error)))
    return compare_runs(runs, damaged, **options)


def compare_runs(
    runs: Sequence[Run],
    damaged: Sequence[Failure] = (),
    *,
    best: bool = False,
    against: str | None = None,
    target: float | None = None,
    metric: str | None = None,
) -> Comparison:
    """Compare runs that were read from disk.

    Args:
        runs: The runs; failed runs are listed as failures.
        damaged: Failures of runs that could not be read.
        best: Keep only the configuration of each strategy that validates best.
        against: The reference of the comparison by device, as for `odt_sim.report.pairing.pair_all`.
        target: The value of the metric to which rounds are counted; by default the target that all runs recorded.
        metric: The metric to compare by, instead of the first metric of the runs. Rounds and configurations are still
            those that the first metric chose.

    Raises:
        CheckpointError: A run has a metric that this version of odt_sim does not have.
        ConfigurationError: The options do not fit the runs, or the runs have different tasks.
    """
    complete = with_common_models([run for run in runs if run.summary])
    first = _common_metric(complete)
    metric = metric if metric and complete else first
    for run in complete:
        if metric not in run.metrics:
            raise ConfigurationError(
                f"--metric: expected a metric of all runs, found {metric}; {run.path} has {', '.join(run.metrics)}"
            )
    check_target(target, metric, "--target")
    recorded = {run.complete.target for run in complete}
    if target is None and metric == first and len(recorded) == 1:
        [target] = recorded
    groups = group_runs(complete)
    selections = select(groups)
    kept = selected_only(groups) if best else groups
    if metric != first:
        # figures over time exist for the metric that chose the round only
        kept = {
            label: [replace(run, compared_by=metric, summary=replace(run.complete, over_time=None)) for run in group]
            for label, group in kept.items()
        }
    joined = iter(join_local([run for group in kept.values() for run in group], data_key if best else training_key))
    kept = {label: [next(joined) for _ in group] for label, group in kept.items()}
    rows = [
        Configuration(label, tuple(group), _values(group, target), selections[label]) for label, group in kept.items()
    ]
    failures = [
        Failure(f"{run.name} {written}".strip(), run.path, str(run.error))
        for run, written in zip(runs, written_differences(runs), strict=True)
        if run.error
    ]
    return Comparison(metric, target, tuple(rows), pair_all(kept, selections, against), (*failures, *damaged))


def _common_metric(runs: Sequence[Run]) -> str:
    for run in runs:
        if unknown := [metric for metric in run.metrics or ("no metric",) if not is_metric(metric)]:
            raise CheckpointError(
                f"{run.path}: has {unknown[0]}, which this version of odt_sim does not support; upgrade odt_sim"
            )
        if run.metrics[0] != runs[0].metrics[0]:
            first, other = run.metrics[0], runs[0].metrics[0]
            raise ConfigurationError(
                f"{run.path} is {run.complete.task}, by {first}, and {runs[0].path} is {runs[0].complete.task}, by {other}: "
                "they have no metric in common; report them separately"
            )
    return runs[0].metrics[0] if runs else "accuracy"


def _values(runs: Sequence[Run], target: float | None) -> dict[str, Spread | None]:
    columns = comparison_columns(runs[0].metrics, target)
    figures = {column.key: [column.figure(run) for run in runs] for column in columns}
    values = {key: over_seeds(of_runs) for key, of_runs in figures.items()}
    if None in figures["rounds_to_target"]:
        values["rounds_to_target"] = None  # a mean over only the seeds that reached the target would mislead
    return values
