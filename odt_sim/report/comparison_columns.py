"""The columns of the comparison, each with a function that returns a run's figure."""

from collections.abc import Callable, Set
from dataclasses import dataclass

from odt_sim.metrics.fleet import fleet_figures, fraction_hurt, measured_as, split_seen
from odt_sim.metrics.names import higher_is_better, title_of
from odt_sim.metrics.rounds import rounds_to_target
from odt_sim.persistence.run import Run
from odt_sim.report.baseline import known_gains
from odt_sim.report.formatting import metric_unit
from odt_sim.report.hurt import COLUMNS as HURT_COLUMNS
from odt_sim.report.phone_columns import (
    by_availability,
    deploy_kilojoules,
    hours,
    hours_to_target,
    joules_each_time,
    kilojoules,
    megabytes_on,
    share_of_seen,
    total,
)

SERVED = "Seen devices"
NEW_USERS = "Unseen devices"
OVER_TIME = "Examples that arrive over time"
COST = "Cost"
PHONES = "Time, energy and participation"
OTHER = "Other metrics"

LABELLING = ("label", "strategy", "seeds", "chosen", "pruned")
"""The columns of a table for programs that describe a configuration, next to the figures."""


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
    figure: Callable[[Run], float | None]
    higher_is_better: bool | None = None


def comparison_columns(metrics: tuple[str, ...], target: float | None = None) -> tuple[Column, ...]:
    """Return all columns for runs with these metrics.

    Args:
        metrics: The runs' metrics; strategies are compared by the first.
        target: The value of the first metric to which rounds are counted.
    """
    first, *others = metrics
    served = (*_served(first), *_new_users(first), *_over_time(first))
    costs, last = (*_cost(first, target), *_phones(first, target)), _other(first)
    taken = {*LABELLING, *(column.key for column in (*served, *costs, *last))}
    return (*served, *costs, *(_further(metric, taken) for metric in others), *last)


def megabytes_moved(run: Run) -> float:
    """Return the traffic of a run in both directions, in millions of bytes."""
    return (run.complete.bytes_down + run.complete.bytes_up) / 1e6


def _served(metric: str) -> list[Column]:
    titles = {
        **{"weighted_mean": "weighted\nmean", "mean": "plain\nmean", "std": "std over\ndevices"},
        **{"bottom_decile": "worst\ndecile", "top_decile": "best\ndecile", "worst": "worst\ndevice"},
    }
    unit, high = metric_unit(metric), higher_is_better(metric)
    return [
        *(
            Column(key, title, SERVED, unit, _fleet_figure("metrics", metric, key), high if key != "std" else False)
            for key, title in titles.items()
        ),
        Column("hurt_local", "hurt vs\nlocal", SERVED, "percent", _hurt("hurt_local"), higher_is_better=False),
        Column("hurt_global", "hurt vs\nglobal", SERVED, "percent", _hurt("hurt_global"), higher_is_better=False),
        *(
            Column(key, title, SERVED, "percent", _recorded(key), higher_is_better=False)
            for key, title in (
                ("attack_success", "attack\nsuccess"),
                ("global_attack_success", "attack success,\nglobal model"),
            )
        ),
        Column("others", "others'\ndata", SERVED, unit, _fleet_figure("metrics_others", metric, "mean"), high),
    ]


def _new_users(metric: str) -> list[Column]:
    adapted, unit, high = "metrics_unseen_adapted", metric_unit(metric), higher_is_better(metric)
    hurt = _hurt("unseen_hurt_local")
    return [
        Column("unseen", "unseen\nmean", NEW_USERS, unit, _fleet_figure("metrics_unseen", metric, "mean"), high),
        Column("unseen_adapted", "unseen\nadapted", NEW_USERS, unit, _fleet_figure(adapted, metric, "mean"), high),
        Column(
            "unseen_worst", "worst\nunseen", NEW_USERS, unit, _fleet_figure("metrics_unseen", metric, "worst"), high
        ),
        Column(
            "unseen_adapted_worst", "worst\nadapted", NEW_USERS, unit, _fleet_figure(adapted, metric, "worst"), high
        ),
        Column("unseen_hurt_local", "unseen hurt\nvs local", NEW_USERS, "percent", hurt, higher_is_better=False),
    ]


def _over_time(metric: str) -> list[Column]:
    unit, high = metric_unit(metric), higher_is_better(metric)
    titles = {
        "now": "last\nperiod",
        "average": "all\nperiods",
        "plasticity": "when\nlearned",
        "forgetting": "forgetting",
    }
    return [
        Column(name, title, OVER_TIME, unit, _over_time_figure(name), high if name != "forgetting" else False)
        for name, title in titles.items()
    ]


def _over_time_figure(name: str) -> Callable[[Run], float | None]:
    return lambda run: (run.complete.get("over_time") or {}).get(name)


def _cost(metric: str, target: float | None) -> list[Column]:
    def to_target(run: Run) -> float | None:
        return None if target is None else rounds_to_target(run.rounds, metric, target)

    def state_kilobytes(run: Run) -> float | None:
        size = run.complete.state_bytes
        return None if size is None else size / 1e3

    less = {
        "megabytes": ("total\nMB", "megabytes", megabytes_moved),
        "megabytes_down": ("MB\ndown", "megabytes", lambda run: run.complete.bytes_down / 1e6),
        "megabytes_up": ("MB\nup", "megabytes", lambda run: run.complete.bytes_up / 1e6),
        "train_calls": ("train\nsteps", "count", lambda run: run.complete.train_calls),
        "infer_calls": ("infer\nbatches", "count", lambda run: run.complete.infer_calls),
        "deploy_train_calls": ("deploy\nsteps", "count", lambda run: run.complete.deploy_train_calls),
        "deploy_infer_calls": ("deploy\nbatches", "count", lambda run: run.complete.deploy_infer_calls),
        "deploy_kilojoules": ("deploy\nkJ", "number", deploy_kilojoules),
        "state_kilobytes": ("kB state\nper device", "kilobytes", state_kilobytes),
    }
    return [
        Column("rounds_to_target", "rounds to\ntarget", COST, "count", to_target, higher_is_better=False),
        Column("reported_round", "reported\nround", COST, "count", lambda run: run.complete.reported_round),
        *(
            Column(key, title, COST, unit, figure, higher_is_better=False)
            for key, (title, unit, figure) in less.items()
        ),
        Column("seconds", "seconds", COST, "seconds", lambda run: run.complete.seconds),
    ]


def _phones(metric: str, target: float | None) -> list[Column]:
    unit, high = metric_unit(metric), higher_is_better(metric)

    def scored(place: int) -> Callable[[Run], float | None]:
        return lambda run: None if (found := by_availability(run, metric)) is None else found[place]

    def peak_megabytes(run: Run) -> float | None:
        peak = total(run, "peak_memory_bytes")
        return None if peak is None else peak / 1e6

    less: dict[str, tuple[str, str, Callable[[Run], float | None]]] = {
        "hours_to_target": ("hours to\ntarget", "number", lambda run: hours_to_target(run, metric, target)),
        "hours": ("simulated\nhours", "number", hours),
        "joules_each_time": ("J per device\nand round", "number", joules_each_time),
        "kilojoules": ("total\nkJ", "number", kilojoules),
        "megabytes_wifi": ("MB over\nWi-Fi", "megabytes", lambda run: megabytes_on(run, "wifi")),
        "megabytes_cellular": ("MB over\ncellular", "megabytes", lambda run: megabytes_on(run, "cellular")),
        "peak_megabytes": ("peak\nmemory, MB", "megabytes", peak_megabytes),
        "participation_gini": ("Gini of\nreports", "number", lambda run: total(run, "participation_gini")),
        "never_reached": ("never\nreported", "percent", lambda run: share_of_seen(run, "never_reached")),
        "too_small": ("too little\nmemory", "percent", lambda run: share_of_seen(run, "too_small")),
    }
    return [
        *(
            Column(key, title, PHONES, kind, figure, higher_is_better=False)
            for key, (title, kind, figure) in less.items()
        ),
        Column("rarely_available", "rarely\navailable", PHONES, unit, scored(0), high),
        Column("often_available", "other\ndevices", PHONES, unit, scored(1), high),
    ]


def _further(metric: str, taken: Set[str]) -> Column:
    """Return the column of a further metric; the key of a user's metric gets a prefix if its name is taken."""
    key, figure = f"metric_{metric}" if metric in taken else metric, _fleet_figure("metrics", metric, "weighted_mean")
    return Column(key, title_of(metric), OTHER, metric_unit(metric), figure, higher_is_better(metric))


def _other(first: str) -> list[Column]:
    name, unit, high = title_of(first), metric_unit(first), higher_is_better(first)
    train, validation = (
        _fleet_figure(part, first, "weighted_mean") for part in ("metrics_train", "metrics_validation")
    )

    def optimism(run: Run) -> float | None:
        """Compare only devices with both figures; otherwise the means would also differ because of the devices."""
        seen, _ = split_seen(run.devices)
        both = [row for row in seen if row.get(first) is not None and row.get(f"validation_{first}") is not None]
        validated = [measured_as(row, "validation", [first], "validation_examples") for row in both]
        chosen, reported = fleet_figures(validated, first), fleet_figures(both, first)
        return chosen.weighted_mean - reported.weighted_mean if chosen and reported else None

    return [
        Column("train", f"train\n{name}", OTHER, unit, train),
        Column("validation", f"validation\n{name}", OTHER, unit, validation, high),
        Column("optimism", "validation\nminus test", OTHER, "points" if unit == "percent" else "signed", optimism),
    ]


def _fleet_figure(part: str, metric: str, name: str) -> Callable[[Run], float | None]:
    """Return a function from a run to one figure of a distribution in its summary; older summaries lack some parts."""
    return lambda run: ((run.complete.get(part) or {}).get(metric) or {}).get(name)


def _recorded(name: str) -> Callable[[Run], float | None]:
    return lambda run: run.complete.get(name)


def _hurt(key: str) -> Callable[[Run], float | None]:
    reference, unseen = HURT_COLUMNS[key]
    return lambda run: fraction_hurt(known_gains(split_seen(run.devices)[unseen], run.metrics, reference))
