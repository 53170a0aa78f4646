"""Configurations against a reference, device by device: the same device, with the same examples, under both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.fleet import HIGHER_IS_BETTER, Row, gains, split_seen
from odt_sim.persistence.run import Run
from odt_sim.report.choice import Choice
from odt_sim.report.conditions import difference, same_conditions, same_data
from odt_sim.report.significance import FEWEST_PAIRS, Array, holm, interval, signed_rank_p

_SAME = ("seen", "train_examples", "examples")


@dataclass(frozen=True)
class Paired:
    """A configuration against its reference, in the unit of the task's first metric.

    Attributes:
        label: The configuration.
        reference: What it is compared with; None where nothing is under its conditions.
        refused: Why there are no pairs, in one line, or None.
        seeds: How many seeds both have.
        pairs: How many seen devices, over these seeds, have a figure under both.
        difference: The mean over pairs of the configuration's figure minus the reference's; None without pairs.
        interval: Its 95 % bootstrap interval; None with fewer than `FEWEST_PAIRS` pairs.
        p: Of Wilcoxon's signed-rank test; None with fewer than `FEWEST_PAIRS` pairs.
        p_holm: The same, adjusted for all comparisons of the report.
        better: Pairs in which the device is served better than by the reference.
        worse: Those in which it is served worse.
    """

    label: str
    reference: str | None
    refused: str | None = None
    seeds: int = 0
    pairs: int = 0
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None
    better: int = 0
    worse: int = 0


class _OtherDevicesError(Exception):
    """Two runs of one seed do not have the same devices."""


def paired(
    groups: Mapping[str, Sequence[Run]], made: Mapping[str, Choice], against: str | None = None
) -> tuple[Paired, ...]:
    """Compares every configuration with its reference.

    Args:
        groups: For each configuration's label its complete runs, one a seed.
        made: The choice of each.
        against: The reference: a label, or a strategy, of which each configuration is compared with the one under its own
            conditions (the chosen one, where there are several). By default `fedavg`, or the first strategy where that is
            missing.

    Returns:
        A comparison for each configuration that is not a reference itself, in their order.

    Raises:
        ConfigurationError: There is no such label or strategy.
    """
    if not groups:
        return ()
    references = _references(groups, made, against)
    compared = [_compare(label, references[label], groups) for label in groups if references[label] != label]
    adjusted = holm([row.p for row in compared])
    return tuple(replace(row, p_holm=p) for row, p in zip(compared, adjusted, strict=True))


def _references(
    groups: Mapping[str, Sequence[Run]], made: Mapping[str, Choice], against: str | None
) -> dict[str, str | None]:
    """Returns for each label the label of its reference, or None."""
    if against in groups:
        return dict.fromkeys(groups, against)
    strategies = list(dict.fromkeys(runs[0].name for runs in groups.values()))
    strategy = against or ("fedavg" if "fedavg" in strategies else strategies[0])
    if strategy not in strategies:
        known = ", ".join(dict.fromkeys([*strategies, *groups]))
        raise ConfigurationError(f"--against: expected one of {known}, found {against!r}")
    found: dict[Any, str] = {}
    for label, runs in groups.items():
        if runs[0].name == strategy and (made[label].label in (None, label)):
            found.setdefault(same_conditions(runs[0]), label)
    return {label: found.get(same_conditions(runs[0])) for label, runs in groups.items()}


def _compare(label: str, reference: str | None, groups: Mapping[str, Sequence[Run]]) -> Paired:
    if reference is None:
        return Paired(label, None, "no run of the reference is on the same data, partition and fleet")
    mine, theirs = groups[label], groups[reference]
    if differs := difference(mine[0], theirs[0]):
        return Paired(label, reference, f"not the same devices as {reference}: {differs}")
    by_seed = {run.complete["seed"]: run for run in theirs}
    both = [(run, by_seed[run.complete["seed"]]) for run in mine if run.complete["seed"] in by_seed]
    if not both:
        return Paired(label, reference, f"no seed in common with {reference}")
    if not same_data(theirs, mine):
        return Paired(label, reference, f"not the same devices as {reference}: another data set of that name")
    try:
        gained = [_gains(*runs) for runs in both]
    except _OtherDevicesError as error:
        return Paired(label, reference, f"not the same devices as {reference}: {error}")
    known = [values for values in gained if len(values)]
    if not known:
        return Paired(label, reference, "no device has a figure under both")
    sign = 1 if HIGHER_IS_BETTER[mine[0].metrics[0]] else -1
    return _figures(Paired(label, reference, seeds=len(both)), [sign * values for values in known], sign)


def _figures(row: Paired, differences: Sequence[Array], sign: int) -> Paired:
    everything = np.concatenate(differences)
    return replace(
        row,
        pairs=len(everything),
        difference=float(everything.mean()),
        interval=interval(differences) if len(everything) >= FEWEST_PAIRS else None,
        p=signed_rank_p(everything),
        better=int(np.sum(sign * everything > 0)),
        worse=int(np.sum(sign * everything < 0)),
    )


def _gains(mine: Run, theirs: Run) -> Array:
    """Returns what the seen devices that have both figures gain over another run of the same seed.

    Raises:
        _OtherDevicesError: A device is missing in one of the runs, or has another number of examples.
    """
    metric = mine.metrics[0]
    other = {row["device"]: row for row in theirs.devices}
    if {row["device"] for row in mine.devices} != set(other):
        raise _OtherDevicesError(
            f"with seed {mine.complete['seed']} there are {len(mine.devices)} and {len(other)} of them"
        )
    joined = [_joined(row, other[row["device"]], metric, mine.complete["seed"]) for row in split_seen(mine.devices)[0]]
    gained = gains(joined, metric, "reference")
    return gained[np.isfinite(gained)]


def _joined(row: Row, other: Row, metric: str, seed: int) -> Row:
    for name in _SAME:
        if row[name] != other[name]:
            raise _OtherDevicesError(
                f"{name} of device {row['device']} with seed {seed} is {row[name]}, and {other[name]} under the reference"
            )
    return {metric: row.get(metric), "reference": other.get(metric)}
