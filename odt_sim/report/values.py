"""The figures of a run, by the key of their column, and their spread over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odt_sim.metrics.fleet import Row, fraction_hurt, split_seen
from odt_sim.metrics.rounds import rounds_to_target
from odt_sim.persistence.run import Run
from odt_sim.report.baseline import known_gains


@dataclass(frozen=True)
class Spread:
    """A figure over seeds.

    Attributes:
        mean: Mean over the seeds for which the figure is known.
        std: Sample standard deviation over those seeds; None for a single one.
    """

    mean: float
    std: float | None


def run_values(run: Run, target: float | None) -> dict[str, float | None]:
    """Returns a complete run's figure for the key of every column, None where it is not known.

    Args:
        run: A complete run, with `local_m` of every device where the comparison knows it.
        target: The value of the task's first metric to which rounds are counted, if any.
    """
    first, *others = run.metrics
    return {
        **_served(run, first),
        **_new_users(run, first),
        **_cost(run.complete),
        "rounds_to_target": None if target is None else rounds_to_target(run.rounds, first, target),
        **{metric: _figure(run, "metrics", metric, "weighted_mean") for metric in others},
        "train": _figure(run, "metrics_train", first, "weighted_mean"),
        "validation": _figure(run, "metrics_validation", first, "weighted_mean"),
    }


def megabytes_moved(summary: Row) -> float:
    """Returns what a run moved in both directions, in millions of bytes."""
    return float(summary["bytes_down"] + summary["bytes_up"]) / 1e6


def over_seeds(values: Sequence[float | None]) -> Spread | None:
    """Returns the spread of a figure over runs; None where no run knows it."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None)


def _served(run: Run, metric: str) -> dict[str, float | None]:
    seen, _ = split_seen(run.devices)
    names = ("weighted_mean", "mean", "std", "bottom_decile", "top_decile", "worst")
    return {
        **{name: _figure(run, "metrics", metric, name) for name in names},
        "hurt_local": fraction_hurt(known_gains(seen, run.metrics, "local")),
        "hurt_global": fraction_hurt(known_gains(seen, run.metrics, "global")),
        "others": _figure(run, "metrics_others", metric, "mean"),
    }


def _new_users(run: Run, metric: str) -> dict[str, float | None]:
    _, unseen = split_seen(run.devices)
    return {
        "unseen": _figure(run, "metrics_unseen", metric, "mean"),
        "unseen_adapted": _figure(run, "metrics_unseen_adapted", metric, "mean"),
        "unseen_worst": _figure(run, "metrics_unseen", metric, "worst"),
        "unseen_adapted_worst": _figure(run, "metrics_unseen_adapted", metric, "worst"),
        "unseen_hurt_local": fraction_hurt(known_gains(unseen, run.metrics, "local")),
    }


def _cost(summary: Row) -> dict[str, float | None]:
    names = ("reported_round", "train_calls", "infer_calls", "deploy_train_calls", "deploy_infer_calls")
    return {
        **{name: summary.get(name) for name in names},
        "megabytes": megabytes_moved(summary),
        "megabytes_down": summary["bytes_down"] / 1e6,
        "megabytes_up": summary["bytes_up"] / 1e6,
        "state_kilobytes": None if summary.get("state_bytes") is None else summary["state_bytes"] / 1e3,
        "seconds": summary["seconds"],
    }


def _figure(run: Run, part: str, metric: str, name: str) -> float | None:
    """Returns one of the fleet's figures; None where no device has it, or the run is from before it was kept."""
    return ((run.complete.get(part) or {}).get(metric) or {}).get(name)
