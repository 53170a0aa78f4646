"""Compare configurations with a reference, device by device: the same device with the same examples under both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.fleet import gains
from odt_sim.metrics.names import higher_is_better
from odt_sim.persistence.records import DeviceRecord
from odt_sim.persistence.run import Run
from odt_sim.report.data_settings import data_difference, data_key, same_data
from odt_sim.report.selection import Selection
from odt_sim.report.significance import FEWEST_PAIRS, Array, holm, interval, signed_rank_p

_SAME = ("seen", "train_examples", "examples")


@dataclass(frozen=True)
class Paired:
    """A configuration against its reference, in the unit of the task's first metric.

    Attributes:
        label: The configuration.
        reference: The configuration that it is compared with; None if there is none on the same data.
        refused: Why there are no pairs, in one line, or None.
        seeds: Seeds that both have.
        pairs: Seen devices, over these seeds, with a figure under both.
        difference: Mean over pairs of the configuration's figure minus the reference's; None without pairs.
        interval: Its 95 % bootstrap interval; None with fewer than `FEWEST_PAIRS` pairs.
        p: Of Wilcoxon's signed-rank test; None with fewer than `FEWEST_PAIRS` pairs.
        p_holm: The same, adjusted for all comparisons of the report.
        better: Pairs in which the device is served better than by the reference.
        worse: Pairs in which the device is served worse.
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
    """Two runs of one seed have different devices."""


def pair_all(
    groups: Mapping[str, Sequence[Run]], selections: Mapping[str, Selection], against: str | None = None
) -> tuple[Paired, ...]:
    """Compare every configuration with its reference.

    Args:
        groups: For each configuration's label its complete runs, one per seed.
        selections: The selection of each.
        against: The reference: a label, or a strategy. A strategy's reference is its configuration on the same data, the
            selected one of several. By default `fedavg`, or the first strategy if there is no `fedavg`.

    Returns:
        A comparison for each configuration that is not a reference itself, in their order.

    Raises:
        ConfigurationError: There is no such label or strategy.
    """
    if not groups:
        return ()
    references = _references(groups, selections, against)
    compared = [_compare(label, references[label], groups) for label in groups if references[label] != label]
    adjusted = holm([row.p for row in compared])
    return tuple(replace(row, p_holm=p) for row, p in zip(compared, adjusted, strict=True))


def _references(
    groups: Mapping[str, Sequence[Run]], selections: Mapping[str, Selection], against: str | None
) -> dict[str, str | None]:
    """Return the label of each label's reference, or None."""
    if against in groups:
        return dict.fromkeys(groups, against)
    strategies = list(dict.fromkeys(runs[0].name for runs in groups.values()))
    strategy = against or ("fedavg" if "fedavg" in strategies else strategies[0])
    if strategy not in strategies:
        known = ", ".join(dict.fromkeys([*strategies, *groups]))
        raise ConfigurationError(f"--against: expected one of {known}, found {against!r}")
    by_data: dict[Any, str] = {}
    for label, runs in groups.items():
        if runs[0].name == strategy and selections[label].label in (None, label):
            by_data.setdefault(data_key(runs[0]), label)
    return {label: by_data.get(data_key(runs[0])) for label, runs in groups.items()}


def _compare(label: str, reference: str | None, groups: Mapping[str, Sequence[Run]]) -> Paired:
    if reference is None:
        return Paired(label, None, "no run of the reference is on the same data, partition and fleet")
    mine, theirs = groups[label], groups[reference]
    if differs := data_difference(mine[0], theirs[0]):
        return Paired(label, reference, f"not the same devices as {reference}: {differs}")
    by_seed = {run.complete.seed: run for run in theirs}
    both = [(run, by_seed[run.complete.seed]) for run in mine if run.complete.seed in by_seed]
    if not both:
        return Paired(label, reference, f"no seed in common with {reference}")
    if not same_data(theirs, mine):
        return Paired(label, reference, f"not the same devices as {reference}: another data set of that name")
    try:
        gained = [values for runs in both if len(values := _gains(*runs))]
    except _OtherDevicesError as error:
        return Paired(label, reference, f"not the same devices as {reference}: {error}")
    if not gained:
        return Paired(label, reference, "no device has a figure under both")
    sign = 1 if higher_is_better(mine[0].metrics[0]) else -1
    return _figures(Paired(label, reference, seeds=len(both)), [sign * values for values in gained], sign)


def _figures(row: Paired, differences: Sequence[Array], sign: int) -> Paired:
    pooled = np.concatenate(differences)
    return replace(
        row,
        pairs=len(pooled),
        difference=float(pooled.mean()),
        interval=interval(differences) if len(pooled) >= FEWEST_PAIRS else None,
        p=signed_rank_p(pooled),
        better=int(np.sum(sign * pooled > 0)),
        worse=int(np.sum(sign * pooled < 0)),
    )


def _gains(mine: Run, theirs: Run) -> Array:
    """Return the gains of the seen devices with both figures over another run of the same seed.

    Raises:
        _OtherDevicesError: A device is missing in one of the runs, or has another number of examples.
    """
    metric, seed = mine.metrics[0], mine.complete.seed
    references = {record.device: record for record in theirs.devices}
    if {record.device for record in mine.devices} != set(references):
        raise _OtherDevicesError(f"with seed {seed} there are {len(mine.devices)} and {len(references)} of them")
    seen = [record for record in mine.devices if record.seen]
    for record in seen:
        _check_same(record, references[record.device], seed)
    rows = [{metric: record.get(metric), "reference": references[record.device].get(metric)} for record in seen]
    gained = gains(rows, metric, "reference")
    return gained[np.isfinite(gained)]


def _check_same(record: DeviceRecord, reference: DeviceRecord, seed: int) -> None:
    for name in ("seen", "train_examples", "examples"):
        if record[name] != reference[name]:
            raise _OtherDevicesError(
                f"{name} of device {record.device} with seed {seed} is {record[name]}, and {reference[name]} under the "
                "reference"
            )
