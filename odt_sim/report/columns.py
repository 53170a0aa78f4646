"""What is shown of a configuration: a column a figure, in small tables by the question that they answer."""

from dataclasses import dataclass

from odt_sim.metrics.fleet import HIGHER_IS_BETTER
from odt_sim.report.formatting import PERCENT, metric_name

SERVED = "Who is served how well"
NEW_USERS = "New users"
COST = "What it costs"
OTHER = "Other figures"

QUESTIONS = (SERVED, NEW_USERS, COST, OTHER)


@dataclass(frozen=True)
class Column:
    """One column of the comparison.

    Attributes:
        key: Its name in `Configuration.values`.
        title: Its heading, of at most two lines.
        question: The table that it stands in, one of `QUESTIONS`.
        unit: `percent` (of a fraction from 0 to 1), `number`, `count`, `megabytes`, `kilobytes` or `seconds`.
        higher_is_better: Whether a larger value is the better one; None where the best is not marked, since the figure has
            no better and worse, or is a machine's noise.
    """

    key: str
    title: str
    question: str
    unit: str
    higher_is_better: bool | None = None


def columns(metrics: tuple[str, ...]) -> tuple[Column, ...]:
    """Returns all columns of a task's runs.

    Args:
        metrics: The task's metrics; the first is the one by which strategies are compared.
    """
    first = metrics[0]
    unit, high = metric_unit(first), HIGHER_IS_BETTER[first]
    return (
        Column("weighted_mean", "weighted\nmean", SERVED, unit, high),
        Column("mean", "plain\nmean", SERVED, unit, high),
        Column("std", "std of\ndevices", SERVED, unit, higher_is_better=False),
        Column("bottom_decile", "bottom\ndecile", SERVED, unit, high),
        Column("top_decile", "top\ndecile", SERVED, unit, high),
        Column("worst", "worst\ndevice", SERVED, unit, high),
        Column("hurt_local", "hurt vs\nlocal", SERVED, "percent", higher_is_better=False),
        Column("hurt_global", "hurt vs\nglobal", SERVED, "percent", higher_is_better=False),
        Column("others", "others'\ndata", SERVED, unit, high),
        Column("unseen", "unseen\nmean", NEW_USERS, unit, high),
        Column("unseen_adapted", "unseen\nadapted", NEW_USERS, unit, high),
        Column("unseen_worst", "worst\nunseen", NEW_USERS, unit, high),
        Column("unseen_adapted_worst", "worst\nadapted", NEW_USERS, unit, high),
        Column("unseen_hurt_local", "unseen hurt\nvs local", NEW_USERS, "percent", higher_is_better=False),
        Column("rounds_to_target", "rounds to\ntarget", COST, "count", higher_is_better=False),
        Column("reported_round", "reported\nround", COST, "count"),
        Column("megabytes", "MB\nmoved", COST, "megabytes", higher_is_better=False),
        Column("megabytes_down", "MB\ndown", COST, "megabytes", higher_is_better=False),
        Column("megabytes_up", "MB\nup", COST, "megabytes", higher_is_better=False),
        Column("train_calls", "train\ncalls", COST, "count", higher_is_better=False),
        Column("infer_calls", "infer\ncalls", COST, "count", higher_is_better=False),
        Column("deploy_train_calls", "deploy\ntrain", COST, "count", higher_is_better=False),
        Column("deploy_infer_calls", "deploy\ninfer", COST, "count", higher_is_better=False),
        Column("state_kilobytes", "kB state\na device", COST, "kilobytes", higher_is_better=False),
        Column("seconds", "seconds", COST, "seconds"),
        *(
            Column(metric, metric_name(metric), OTHER, metric_unit(metric), HIGHER_IS_BETTER[metric])
            for metric in metrics[1:]
        ),
        Column("train", f"{metric_name(first)},\ntrain", OTHER, unit),
        Column("validation", f"{metric_name(first)},\nvalidation", OTHER, unit, high),
    )


def metric_unit(metric: str) -> str:
    """Returns the unit of a metric's column."""
    return "percent" if metric in PERCENT else "number"
