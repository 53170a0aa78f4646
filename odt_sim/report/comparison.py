"""Puts runs side by side: a row a configuration, its seeds merged, every device joined with its local-only model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.metrics.fleet import HIGHER_IS_BETTER, TASK_METRICS, Row, fraction_hurt, split_seen
from odt_sim.report.baseline import join_local, known_gains
from odt_sim.report.grouping import configurations
from odt_sim.report.labels import details, differing_overrides, find_runs
from odt_sim.report.run import Run, load_run


@dataclass(frozen=True)
class Column:
    """One column of the comparison.

    Attributes:
        key: Its name in `Configuration.values`.
        title: Its heading, of at most two lines.
        kind: `score` (in the metric's own unit), `fraction` (0 to 1), `megabytes` or `seconds`.
        higher_is_better: Whether a larger value is the better one; None where it follows the metric.
        ranked: Whether its best value is marked; a machine's noise is no merit.
    """

    key: str
    title: str
    kind: str
    higher_is_better: bool | None = None
    ranked: bool = True


COLUMNS = (
    Column("weighted_mean", "weighted\nmean", "score"),
    Column("mean", "plain\nmean", "score"),
    Column("std", "std of\ndevices", "score", higher_is_better=False),
    Column("bottom_decile", "bottom\ndecile", "score"),
    Column("worst", "worst\ndevice", "score"),
    Column("unseen", "unseen\nmean", "score"),
    Column("hurt_local", "hurt vs\nlocal", "fraction", higher_is_better=False),
    Column("hurt_global", "hurt vs\nglobal", "fraction", higher_is_better=False),
    Column("megabytes", "MB\nmoved", "megabytes", higher_is_better=False),
    Column("seconds", "seconds", "seconds", higher_is_better=False, ranked=False),
)


@dataclass(frozen=True)
class Spread:
    """A figure over seeds.

    Attributes:
        mean: Mean over the seeds for which the figure is known.
        std: Sample standard deviation over those seeds; None for a single one.
    """

    mean: float
    std: float | None


@dataclass(frozen=True)
class Configuration:
    """One row: the runs that differ only in their seed.

    Attributes:
        label: The strategy, and the overrides and settings in which the compared runs differ.
        runs: A run a seed, with `local_m` of every device from the local-only run where the comparison has one.
        values: For the key of every column, its figure, or None where not known.
    """

    label: str
    runs: tuple[Run, ...]
    values: Mapping[str, Spread | None]

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
        rows: The configurations in the order of their folders.
        failures: The runs that have no row, or whose row is from before they failed.
    """

    metric: str
    rows: tuple[Configuration, ...]
    failures: tuple[Failure, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics of the runs' task."""
        return next(metrics for metrics in TASK_METRICS.values() if metrics[0] == self.metric)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All complete runs."""
        return tuple(run for row in self.rows for run in row.runs)

    def higher_is_better(self, column: Column) -> bool:
        """Whether a larger value of a column is the better one."""
        return HIGHER_IS_BETTER[self.metric] if column.higher_is_better is None else column.higher_is_better

    def best(self, column: Column) -> float | None:
        """Returns the best mean of a column, or None where it is not ranked or fewer than two rows differ in it."""
        means = {figure.mean for row in self.rows if (figure := row.values[column.key])}
        if not column.ranked or len(means) < 2:
            return None
        return max(means) if self.higher_is_better(column) else min(means)


def compare(folders: Sequence[Path]) -> Comparison:
    """Compares all runs at or below some folders.

    Raises:
        CheckpointError: A folder is missing or holds no run.
        ConfigurationError: The runs are of different tasks.
    """
    runs, damaged = _load(find_runs(folders))
    complete = [run for run in runs if run.summary]
    failed = [run for run in runs if run.error]
    metric = _common_metric(complete)
    joined = join_local(complete, TASK_METRICS[_task(complete)]) if complete else []
    rows = [Configuration(name, tuple(group), _values(group, metric)) for name, group in configurations(joined).items()]
    keys = ["seed", *differing_overrides(runs)]
    failures = [Failure(_failed_label(run, keys), run.path, str(run.error)) for run in failed]
    return Comparison(metric, tuple(rows), (*failures, *damaged))


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


def _task(runs: Sequence[Run]) -> str:
    return str(_summary(runs[0])["task"])


def _common_metric(runs: Sequence[Run]) -> str:
    for run in runs:
        if _summary(run)["task"] not in TASK_METRICS:
            known = " or ".join(TASK_METRICS)
            raise CheckpointError(f"{run.path}: its task is {_summary(run)['task']!r}, expected {known}; run it again")
        if _summary(run)["task"] != _task(runs):
            raise ConfigurationError(
                f"{run.path} is {_summary(run)['task']} and {runs[0].path} is {_task(runs)}: they have no metric in common; "
                "report them apart"
            )
    return TASK_METRICS[_task(runs) if runs else "classification"][0]


def _values(runs: Sequence[Run], metric: str) -> dict[str, Spread | None]:
    figures = [_run_values(run, metric) for run in runs]
    return {column.key: _spread([values[column.key] for values in figures]) for column in COLUMNS}


def _run_values(run: Run, metric: str) -> dict[str, float | None]:
    summary = _summary(run)
    seen: Row = summary["metrics"].get(metric) or {}
    unseen: Row = summary["metrics_unseen"].get(metric) or {}
    metrics = TASK_METRICS[summary["task"]]
    devices, _ = split_seen(run.devices)
    return {
        **{key: seen.get(key) for key in ("weighted_mean", "mean", "std", "bottom_decile", "worst")},
        "unseen": unseen.get("mean"),
        "hurt_local": fraction_hurt(known_gains(devices, metrics, "local")),
        "hurt_global": fraction_hurt(known_gains(devices, metrics, "global")),
        "megabytes": (summary["bytes_down"] + summary["bytes_up"]) / 1e6,
        "seconds": summary["seconds"],
    }


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None)


def _summary(run: Run) -> Row:
    assert run.summary is not None  # only complete runs come here
    return run.summary
