"""Puts runs side by side: a row a configuration, its seeds merged, every device joined with its local-only model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.metrics.fleet import TASK_METRICS
from odt_sim.metrics.rounds import check_target
from odt_sim.persistence.run import Run, find_runs, load_run
from odt_sim.report.baseline import join_local, same_training
from odt_sim.report.choice import Choice, choices, only_chosen
from odt_sim.report.columns import Column, columns
from odt_sim.report.conditions import same_conditions
from odt_sim.report.grouping import configurations
from odt_sim.report.labels import details, differing_overrides
from odt_sim.report.pairing import Paired, paired
from odt_sim.report.values import Spread, over_seeds, run_values


@dataclass(frozen=True)
class Configuration:
    """One row: the runs that differ only in their seed.

    Attributes:
        label: The strategy, and the overrides and settings in which the compared runs differ.
        runs: A run a seed, with `local_m` of every device from the local-only run where the comparison has one.
        values: For the key of every column, its figure, or None where not known.
        choice: Which configuration of its strategy validates best, and of how many.
    """

    label: str
    runs: tuple[Run, ...]
    values: Mapping[str, Spread | None]
    choice: Choice

    @property
    def chosen(self) -> bool:
        """Whether it was chosen, on validation examples, of several configurations of its strategy."""
        return self.choice.candidates > 1 and self.choice.label == self.label

    @property
    def strategy(self) -> str:
        """The name of the strategy that all its runs share."""
        return self.runs[0].name


@dataclass(frozen=True)
class Failure:
    """A run that ended early, or whose records are damaged.

    Attributes:
        label: Its strategy, seed and the overrides in which it differs from others.
        path: Its folder.
        error: Why, in one line.
    """

    label: str
    path: Path
    error: str


@dataclass(frozen=True)
class Comparison:
    """The runs of some folders, side by side.

    Attributes:
        metric: The metric by which they are compared, the first of their task.
        target: The value of it to which rounds are counted, if any.
        rows: The configurations in the order of their folders.
        paired: Each configuration against its reference, device by device.
        failures: The runs that have no row, or whose row is from before they failed.
    """

    metric: str
    target: float | None
    rows: tuple[Configuration, ...]
    paired: tuple[Paired, ...]
    failures: tuple[Failure, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics of the runs' task."""
        return next(metrics for metrics in TASK_METRICS.values() if metrics[0] == self.metric)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All complete runs."""
        return tuple(run for row in self.rows for run in row.runs)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of which at least one row has a figure; that of rounds to the target wherever there is one."""
        return tuple(
            column
            for column in columns(self.metrics)
            if any(row.values[column.key] for row in self.rows)
            or (column.key == "rounds_to_target" and self.target is not None)
        )

    def best(self, column: Column) -> float | None:
        """Returns the best mean of a column; None where it has no best, or where that of more than half of the rows is it."""
        means = [figure.mean for row in self.rows if (figure := row.values[column.key])]
        if column.higher_is_better is None or not means:
            return None
        found = max(means) if column.higher_is_better else min(means)
        return found if means.count(found) <= len(means) / 2 else None


def compare(
    folders: Sequence[Path], *, best: bool = False, against: str | None = None, target: float | None = None
) -> Comparison:
    """Compares all runs at or below some folders.

    Args:
        folders: Run folders, or folders that hold runs.
        best: Keep of each strategy only the configuration that validates best.
        against: With what each configuration is compared device by device, as `odt_sim.report.pairing.paired` takes it.
        target: The value of the task's first metric to which rounds are counted; by default the one that all runs recorded.

    Raises:
        CheckpointError: A folder is missing or holds no run.
        ConfigurationError: The runs are of different tasks, there is nothing to choose by, no such reference, or a target
            that no run can reach.
    """
    runs, damaged = _load(find_runs(folders))
    complete = [run for run in runs if run.summary]
    metric = _common_metric(complete)
    check_target(target, metric, "--target")
    goal = _recorded_target(complete) if target is None else target
    groups = configurations(complete)
    made = choices(groups)
    kept = _with_local(only_chosen(groups) if best else groups, tuned=best)
    rows = [Configuration(label, tuple(group), _values(group, goal), made[label]) for label, group in kept.items()]
    keys = ["seed", *differing_overrides(runs)]
    failures = [Failure(_failed_label(run, keys), run.path, str(run.error)) for run in runs if run.error]
    return Comparison(metric, goal, tuple(rows), paired(kept, made, against), (*failures, *damaged))


def _with_local(groups: Mapping[str, list[Run]], *, tuned: bool) -> dict[str, list[Run]]:
    """Joins the runs with their local-only ones: those of the same training, or of tuned ones the tuned one."""
    runs = [run for group in groups.values() for run in group]
    joined = iter(join_local(runs, same_conditions if tuned else same_training))
    return {label: [next(joined) for _ in group] for label, group in groups.items()}


def _recorded_target(runs: Sequence[Run]) -> float | None:
    targets = {run.complete.get("target") for run in runs}
    return targets.pop() if len(targets) == 1 else None


def _load(paths: Iterable[Path]) -> tuple[list[Run], list[Failure]]:
    runs, damaged = [], []
    for path in paths:
        try:
            runs.append(load_run(path))
        except CheckpointError as error:
            damaged.append(Failure(path.name, path, str(error)))
    return runs, damaged


def _failed_label(run: Run, keys: Sequence[str]) -> str:
    return " ".join([run.name, *(f"{key}={value}" for key, value in details([run], keys).items())])


def _common_metric(runs: Sequence[Run]) -> str:
    tasks = [run.complete["task"] for run in runs]
    for run, task in zip(runs, tasks, strict=True):
        if task not in TASK_METRICS:
            known = " or ".join(TASK_METRICS)
            raise CheckpointError(f"{run.path}: its task is {task!r}, expected {known}; run it again")
        if task != tasks[0]:
            raise ConfigurationError(
                f"{run.path} is {task} and {runs[0].path} is {tasks[0]}: they have no metric in common; report them apart"
            )
    return TASK_METRICS[tasks[0] if tasks else "classification"][0]


def _values(runs: Sequence[Run], target: float | None) -> dict[str, Spread | None]:
    figures = [run_values(run, target) for run in runs]
    values = {column.key: over_seeds([of_run[column.key] for of_run in figures]) for column in columns(runs[0].metrics)}
    if any(of_run["rounds_to_target"] is None for of_run in figures):
        values["rounds_to_target"] = None  # the mean of those that got there would hide those that did not
    return values
