"""The costs of a run on the clock for the phones' owners: figures over the fleet and by device class."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from odt_sim.metrics.fleet import split_seen
from odt_sim.metrics.rounds import rounds_to_target
from odt_sim.persistence.run import Run

HOUR = 3600.0
RARE = 0.25
"""The share of devices that count as rarely available: the least available ones."""


def hours(run: Run) -> float | None:
    """Return the simulated hours of a run; None without a clock."""
    seconds = run.complete.simulated_seconds
    return None if seconds is None else seconds / HOUR


def hours_to_target(run: Run, metric: str, target: float | None) -> float | None:
    """Return the simulated hours at the end of the first evaluated round that reaches the target; None if none does."""
    reached = None if target is None else rounds_to_target(run.rounds, metric, target)
    if reached is None:
        return None
    end = next(record.simulated_end for record in run.rounds if record.round == reached)
    return None if end is None else end / HOUR


def joules_each_time(run: Run) -> float | None:
    """Return the mean energy that a device spends each time it is selected, over all times that ended."""
    ended = sum(  # an asynchronous server's selected devices may still train at the end; no record has their energy
        (record.reported or 0) + (record.late or 0) + (record.left or 0) + (record.stale or 0) for record in run.rounds
    )
    return run.complete.joules / ended if run.complete.joules is not None and ended else None


def deploy_kilojoules(run: Run) -> float | None:
    """Return the energy of one deployment to the evaluated devices, in thousands of joules."""
    return None if run.complete.deploy_joules is None else run.complete.deploy_joules / 1e3


def kilojoules(run: Run) -> float | None:
    """Return the energy of all devices over all rounds, in thousands of joules."""
    return None if run.complete.joules is None else run.complete.joules / 1e3


def megabytes_on(run: Run, network: str) -> float | None:
    """Return the traffic on `wifi` or `cellular`, in millions of bytes."""
    sent = getattr(run.complete, f"bytes_{network}")
    return None if sent is None else sent / 1e6


def total(run: Run, name: str) -> float | None:
    """Return one of the fleet's totals; None without a clock."""
    return (run.complete.fleet_totals or {}).get(name)


def share_of_seen(run: Run, name: str) -> float | None:
    """Return a count of the fleet's totals as a fraction of the seen devices."""
    totals = run.complete.fleet_totals
    if totals is None:
        return None
    seen = sum(each["devices"] for each in totals["classes"].values())
    return float(totals[name] / seen) if seen else None


def by_availability(run: Run, metric: str) -> tuple[float, float] | None:
    """Return the mean of a metric over the rarely available devices and over the others.

    Returns:
        None if all evaluated seen devices are equally available, or without a clock.
    """
    seen, _ = split_seen(run.devices)
    known = [row for row in seen if row.get("available") is not None and row.get(metric) is not None]
    if not known:
        return None
    shares, values = (np.array([row[name] for row in known], np.float64) for name in ("available", metric))
    limit = np.quantile(shares, RARE)
    rare = shares <= limit
    return None if rare.all() else (float(values[rare].mean()), float(values[~rare].mean()))


def of_classes(runs: Sequence[Run], metric: str) -> dict[str, dict[str, float | None]]:
    """Return the figures of each device class over all seeds.

    Args:
        runs: The runs of a configuration, one per seed.
        metric: The metric of the comparison.

    Returns:
        By class: `devices` (their number, mean over seeds), `never_reached` (the fraction of them), `score` (the mean
        over the evaluated seen devices), and per device over the whole run `kilojoules`, `megabytes` and `hours` at
        work.
    """
    totals = [run.complete.fleet_totals["classes"] for run in runs if run.complete.fleet_totals]
    names = dict.fromkeys(name for each in totals for name in each)
    return {name: _of_class([each[name] for each in totals if name in each], runs, name, metric) for name in names}


def _of_class(
    totals: Sequence[Mapping[str, Any]], runs: Sequence[Run], name: str, metric: str
) -> dict[str, float | None]:
    devices = sum(each["devices"] for each in totals)
    scores = [
        row[metric]
        for run in runs
        for row in split_seen(run.devices)[0]
        if row.get("device_class") == name and row.get(metric) is not None
    ]
    sent = sum(each["bytes_wifi"] + each["bytes_cellular"] for each in totals)
    return {
        "devices": devices / len(totals),
        "never_reached": sum(each["never_reached"] for each in totals) / devices,
        "score": float(np.mean(scores)) if scores else None,
        "kilojoules": sum(each["joules"] for each in totals) / 1e3 / devices,
        "megabytes": sent / 1e6 / devices,
        "hours": sum(each["busy_seconds"] for each in totals) / HOUR / devices,
    }
