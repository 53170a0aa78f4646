"""The figures of a run: the columns of the comparison, and the costs by which plots and benchmarks compare."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from odt_sim.metrics.fleet import fleet_figures, fraction_hurt, measured_as, split_seen
from odt_sim.metrics.names import higher_is_better, title_of
from odt_sim.metrics.rounds import rounds_to_target
from odt_sim.persistence.run import Run
from odt_sim.report.formatting import metric_unit
from odt_sim.report.gains import HURT_COLUMNS, known_gains

SERVED = "Seen devices"
NEW_USERS = "Unseen devices"
OVER_TIME = "Examples that arrive over time"
COST = "Cost"
PHONES = "Time, energy and participation"
OTHER = "Other metrics"

LABELLING = ("label", "strategy", "seeds", "chosen", "pruned")
"""The columns of a table for programs that describe a configuration, next to the figures."""

HOUR = 3600.0
RARE = 0.25
"""The share of devices that count as rarely available: the least available ones."""

Figure = Callable[[Run], float | None]
"""Returns a figure of a complete run; None if unknown."""


@dataclass(frozen=True)
class Column:
    """One column of the comparison.

    Attributes:
        key: Its key in `Configuration.values`.
        title: Its heading, of at most two lines.
        question: The table that contains it: `SERVED`, `NEW_USERS`, `OVER_TIME`, `COST`, `PHONES` or `OTHER`.
        unit: `percent` (of a fraction from 0 to 1), `points` (of a difference of fractions), `signed`, `number`, `count`,
            `megabytes`, `kilobytes` or `seconds`.
        figure: Returns the figure of a complete run; None if unknown.
        higher_is_better: Whether larger is better; None if the column has no best value.
    """

    key: str
    title: str
    question: str
    unit: str
    figure: Figure
    higher_is_better: bool | None = None


@dataclass(frozen=True)
class Cost:
    """A cost of runs.

    Attributes:
        key: Its name in file names.
        title: Its name in headings.
        axis: Its name and unit on an axis; small values get a smaller unit.
        of_run: Returns the cost of a complete run; None if unknown.
    """

    key: str
    title: str
    axis: str
    of_run: Figure


def _hours(run: Run) -> float | None:
    return _scaled(run.complete.simulated_seconds, HOUR)


def _megabytes(run: Run) -> float:
    return (run.complete.bytes_down + run.complete.bytes_up) / 1e6


def _sum_with_deployment(rounds: float | None, deployment: float | None, unit: float = 1.0) -> float | None:
    """Return a cost of all rounds and of one deployment, which includes fine-tuning at deployment."""
    return None if rounds is None or deployment is None else (rounds + deployment) / unit


COSTS = (
    Cost("megabytes", "traffic", "MB sent and received over all rounds", _megabytes),
    Cost(
        "train_calls",
        "training steps",
        "training steps of all rounds and one deployment to all devices",
        lambda run: _sum_with_deployment(run.complete.train_calls, run.complete.deploy_train_calls),
    ),
    Cost("hours", "simulated time", "simulated hours over all rounds", _hours),
    Cost(
        "joules",
        "energy",
        "kJ of all rounds and one deployment to all devices",
        lambda run: _sum_with_deployment(run.complete.joules, run.complete.deploy_joules, 1e3),
    ),
)


def comparison_columns(metrics: tuple[str, ...], target: float | None = None) -> tuple[Column, ...]:
    """Return all columns for runs with these metrics.

    Args:
        metrics: The runs' metrics; strategies are compared by the first.
        target: The value of the first metric to which rounds are counted.
    """
    first, *others = metrics
    before, after = (*_served(first), *_new_users(first), *_over_time(first), *_cost(first, target)), _other(first)
    taken = {*LABELLING, *(column.key for column in (*before, *after))}
    further = []
    for metric in others:  # the key of a user's metric gets a prefix if its name is taken
        key, figure = f"metric_{metric}" if metric in taken else metric, _fleet("metrics", metric, "weighted_mean")
        further.append(Column(key, title_of(metric), OTHER, metric_unit(metric), figure, higher_is_better(metric)))
    return (*before, *further, *after)


def _served(metric: str) -> list[Column]:
    unit, high = metric_unit(metric), higher_is_better(metric)

    def served(key: str, title: str, better: bool = high) -> Column:
        return Column(key, title, SERVED, unit, _fleet("metrics", metric, key), better)

    def harm(key: str, title: str, figure: Figure) -> Column:
        return Column(key, title, SERVED, "percent", figure, higher_is_better=False)

    return [
        served("weighted_mean", "weighted\nmean"),
        served("mean", "plain\nmean"),
        served("std", "std over\ndevices", False),
        served("bottom_decile", "worst\ndecile"),
        served("top_decile", "best\ndecile"),
        served("worst", "worst\ndevice"),
        harm("hurt_local", "hurt vs\nlocal", _hurt("hurt_local")),
        harm("hurt_global", "hurt vs\nglobal", _hurt("hurt_global")),
        harm("attack_success", "attack\nsuccess", lambda run: run.complete.attack_success),
        harm(
            "global_attack_success",
            "attack success,\nglobal model",
            lambda run: run.complete.global_attack_success,
        ),
        Column("others", "others'\ndata", SERVED, unit, _fleet("metrics_others", metric, "mean"), high),
    ]


def _new_users(metric: str) -> list[Column]:
    def unseen(key: str, title: str, part: str, figure: str) -> Column:
        better = higher_is_better(metric)
        return Column(key, title, NEW_USERS, metric_unit(metric), _fleet(part, metric, figure), better)

    hurt = _hurt("unseen_hurt_local")
    return [
        unseen("unseen", "unseen\nmean", "metrics_unseen", "mean"),
        unseen("unseen_adapted", "unseen\nadapted", "metrics_unseen_adapted", "mean"),
        unseen("unseen_worst", "worst\nunseen", "metrics_unseen", "worst"),
        unseen("unseen_adapted_worst", "worst\nadapted", "metrics_unseen_adapted", "worst"),
        Column("unseen_hurt_local", "unseen hurt\nvs local", NEW_USERS, "percent", hurt, higher_is_better=False),
    ]


def _over_time(metric: str) -> list[Column]:
    def over_time(key: str, title: str, better: bool) -> Column:
        return Column(
            key, title, OVER_TIME, metric_unit(metric), lambda run: (run.complete.over_time or {}).get(key), better
        )

    high = higher_is_better(metric)
    return [
        over_time("now", "last\nperiod", high),
        over_time("average", "all\nperiods", high),
        over_time("plasticity", "when\nlearned", high),
        over_time("forgetting", "forgetting", False),
    ]


def _cost(metric: str, target: float | None) -> list[Column]:
    """Return the columns of costs, and of a run on the clock also of time, energy and participation."""

    def to_target(run: Run) -> int | None:
        return None if target is None else rounds_to_target(run.rounds, metric, target)

    def hours_to_target(run: Run) -> float | None:
        """Return the simulated hours at the end of the first evaluated round that reaches the target."""
        reached = to_target(run)
        return next((_scaled(line.simulated_end, HOUR) for line in run.rounds if line.round == reached), None)

    def spent(key: str, title: str, unit: str, figure: Figure, question: str = COST) -> Column:
        return Column(key, title, question, unit, figure, higher_is_better=False)

    def on_clock(key: str, title: str, figure: Figure, unit: str = "number") -> Column:
        return spent(key, title, unit, figure, PHONES)

    def scored(key: str, title: str, place: int) -> Column:
        def figure(run: Run) -> float | None:
            found = _by_availability(run, metric)
            return None if found is None else found[place]

        return Column(key, title, PHONES, metric_unit(metric), figure, higher_is_better(metric))

    return [
        spent("rounds_to_target", "rounds to\ntarget", "count", to_target),
        Column("reported_round", "reported\nround", COST, "count", lambda run: run.complete.reported_round),
        spent("megabytes", "total\nMB", "megabytes", _megabytes),
        spent("megabytes_down", "MB\ndown", "megabytes", lambda run: run.complete.bytes_down / 1e6),
        spent("megabytes_up", "MB\nup", "megabytes", lambda run: run.complete.bytes_up / 1e6),
        spent("train_calls", "train\nsteps", "count", lambda run: run.complete.train_calls),
        spent("infer_calls", "infer\nbatches", "count", lambda run: run.complete.infer_calls),
        spent("deploy_train_calls", "deploy\nsteps", "count", lambda run: run.complete.deploy_train_calls),
        spent("deploy_infer_calls", "deploy\nbatches", "count", lambda run: run.complete.deploy_infer_calls),
        spent("deploy_kilojoules", "deploy\nkJ", "number", lambda run: _scaled(run.complete.deploy_joules, 1e3)),
        spent(
            "state_kilobytes", "kB state\nper device", "kilobytes", lambda run: _scaled(run.complete.state_bytes, 1e3)
        ),
        Column("seconds", "seconds", COST, "seconds", lambda run: run.complete.seconds),
        on_clock("hours_to_target", "hours to\ntarget", hours_to_target),
        on_clock("hours", "simulated\nhours", _hours),
        on_clock("joules_each_time", "J per device\nand round", _joules_each_time),
        on_clock("kilojoules", "total\nkJ", lambda run: _scaled(run.complete.joules, 1e3)),
        on_clock("megabytes_wifi", "MB over\nWi-Fi", lambda run: _scaled(run.complete.bytes_wifi, 1e6), "megabytes"),
        on_clock(
            "megabytes_cellular",
            "MB over\ncellular",
            lambda run: _scaled(run.complete.bytes_cellular, 1e6),
            "megabytes",
        ),
        on_clock(
            "peak_megabytes",
            "peak\nmemory, MB",
            lambda run: _scaled(_total(run, "peak_memory_bytes"), 1e6),
            "megabytes",
        ),
        on_clock("participation_gini", "Gini of\nreports", lambda run: _total(run, "participation_gini")),
        on_clock("never_reached", "never\nreported", lambda run: _share_of_seen(run, "never_reached"), "percent"),
        on_clock("too_small", "too little\nmemory", lambda run: _share_of_seen(run, "too_small"), "percent"),
        scored("rarely_available", "rarely\navailable", 0),
        scored("often_available", "other\ndevices", 1),
    ]


def _other(metric: str) -> list[Column]:
    name, unit = title_of(metric), metric_unit(metric)
    train, validation = (_fleet(part, metric, "weighted_mean") for part in ("metrics_train", "metrics_validation"))

    def optimism(run: Run) -> float | None:
        """Compare only devices with both figures; otherwise the means would also differ because of the devices."""
        seen, _ = split_seen(run.devices)
        both = [row for row in seen if row.get(metric) is not None and row.get(f"validation_{metric}") is not None]
        validated = [measured_as(row, "validation", [metric], "validation_examples") for row in both]
        chosen, reported = fleet_figures(validated, metric), fleet_figures(both, metric)
        return chosen.weighted_mean - reported.weighted_mean if chosen and reported else None

    return [
        Column("train", f"train\n{name}", OTHER, unit, train),
        Column("validation", f"validation\n{name}", OTHER, unit, validation, higher_is_better(metric)),
        Column("optimism", "validation\nminus test", OTHER, "points" if unit == "percent" else "signed", optimism),
    ]


def _fleet(part: str, metric: str, name: str) -> Figure:
    """Return a function from a run to one figure of a distribution in its summary."""
    return lambda run: ((run.complete.get(part) or {}).get(metric) or {}).get(name)


def _hurt(key: str) -> Figure:
    reference, unseen = HURT_COLUMNS[key]
    return lambda run: fraction_hurt(known_gains(split_seen(run.devices)[unseen], run.metrics, reference))


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _joules_each_time(run: Run) -> float | None:
    """Return the mean energy that a device spends each time it is selected, over all times that ended."""
    ended = sum(  # an asynchronous server's selected devices may still train at the end; no record has their energy
        (record.reported or 0) + (record.late or 0) + (record.left or 0) + (record.stale or 0) for record in run.rounds
    )
    return run.complete.joules / ended if run.complete.joules is not None and ended else None


def _total(run: Run, name: str) -> float | None:
    """Return one of the fleet's totals; None without a clock."""
    return (run.complete.fleet_totals or {}).get(name)


def _share_of_seen(run: Run, name: str) -> float | None:
    """Return a count of the fleet's totals as a fraction of the seen devices."""
    totals = run.complete.fleet_totals
    seen = sum(each["devices"] for each in totals["classes"].values()) if totals else 0
    return float(totals[name] / seen) if totals and seen else None


def _by_availability(run: Run, metric: str) -> tuple[float, float] | None:
    """Return the mean of a metric over the rarely available devices and over the others.

    Returns:
        None if all evaluated seen devices are equally available, or without a clock.
    """
    seen, _ = split_seen(run.devices)
    evaluated = [row for row in seen if row.get("available") is not None and row.get(metric) is not None]
    if not evaluated:
        return None
    shares, values = (np.array([row[name] for row in evaluated], np.float64) for name in ("available", metric))
    rare = shares <= np.quantile(shares, RARE)
    return None if rare.all() else (float(values[rare].mean()), float(values[~rare].mean()))
