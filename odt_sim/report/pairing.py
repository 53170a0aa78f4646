"""Compare configurations with a reference, device by device: the same device with the same examples under both."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.fleet import gains
from odt_sim.metrics.names import higher_is_better
from odt_sim.persistence.run import Run
from odt_sim.report.run_settings import data_difference, data_digest, data_key, same_data
from odt_sim.report.selection import Selection
from odt_sim.report.significance import FEWEST, Unit, by_key, holm, signs, student, units

_SAME = ("seen", "train_examples", "examples", "user")
"""The columns in which a device must be equal in both runs, where both know them."""


@dataclass(frozen=True)
class Paired:
    """A configuration compared with its reference, in the unit of the runs' first metric.

    Attributes:
        label: The configuration.
        reference: The configuration that it is compared with; None if there is none on the same data.
        refused: Why there are no pairs, in one line, or None.
        seeds: The number of seeds that both have.
        unit: The independent units of the test: `people`, who return with every seed and count once, with their mean
            over seeds; `seeds`, if each seed draws other devices; `devices`, for a single seed. None without pairs.
        units: The number of units.
        pairs: The number of seen devices with a figure under both, over all seeds; of people, if they return.
        difference: Mean over units of the configuration's figure minus the reference's; None without pairs.
        interval: Its 95 % interval by Student's t over the units; None with too few units (`significance.FEWEST`).
        p: The p value of the same t: it is below 0.05 exactly if the interval excludes 0.
        p_holm: The p value adjusted for all comparisons of the report.
        better: The number of pairs in which the device is served better than under the reference.
        worse: The number of pairs in which the device is served worse.
    """

    label: str
    reference: str | None
    refused: str | None = None
    seeds: int = 0
    unit: Unit | None = None
    units: int = 0
    pairs: int = 0
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None
    better: int = 0
    worse: int = 0

    @property
    def equal(self) -> int:
        """The number of pairs in which both serve the device equally."""
        return self.pairs - self.better - self.worse


class _OtherDevicesError(Exception):
    """Two runs of one seed have different devices."""


def pair_all(
    groups: Mapping[str, Sequence[Run]], selections: Mapping[str, Selection], against: str | None = None
) -> tuple[Paired, ...]:
    """Compare every configuration with its reference.

    Args:
        groups: The complete runs of each configuration, one per seed, by label.
        selections: The selection of each configuration, by label.
        against: The reference: a label or a strategy. A strategy stands for its configuration on the same data, or for
            the selected one of several. By default `fedavg`, or the first strategy if there is no `fedavg`.

    Returns:
        A comparison for each configuration that is not a reference itself, in order. Configurations that a search's
        pruner ended are left out: they are worse after fewer rounds, and more tests would hide the differences of the
        others.

    Raises:
        ConfigurationError: There is no such label or strategy.
    """
    if not groups:
        return ()
    references, others = _references(groups, selections, against)
    compared = [
        _compare(label, references[label], groups, others)
        for label, runs in groups.items()
        if references[label] != label and not any(run.pruned for run in runs)
    ]
    adjusted = holm([row.p for row in compared])
    return tuple(replace(row, p_holm=p) for row, p in zip(compared, adjusted, strict=True))


def _references(
    groups: Mapping[str, Sequence[Run]], selections: Mapping[str, Selection], against: str | None
) -> tuple[dict[str, str | None], list[str]]:
    """Return the reference of each label, or None, and the labels that are references on any data."""
    if against in groups:
        return dict.fromkeys(groups, against), [str(against)]
    strategies = list(dict.fromkeys(runs[0].name for runs in groups.values()))
    strategy = against or ("fedavg" if "fedavg" in strategies else strategies[0])
    if strategy not in strategies:
        known = ", ".join(dict.fromkeys([*strategies, *groups]))
        raise ConfigurationError(f"against: expected one of {known}, found {against!r}")
    by_data: dict[Any, str] = {}
    for label, runs in groups.items():
        if runs[0].name == strategy and selections[label].label in (None, label):
            by_data.setdefault(data_key(runs[0]), label)
    return {label: by_data.get(data_key(runs[0])) for label, runs in groups.items()}, list(by_data.values())


def _compare(label: str, reference: str | None, groups: Mapping[str, Sequence[Run]], others: Sequence[str]) -> Paired:
    if reference is None:
        differing = [f" ({other}: {data_difference(groups[label][0], groups[other][0])})" for other in others]
        nearest = min(differing, key=len, default="")
        return Paired(label, None, f"no run of the reference is on the same data, partition and fleet{nearest}")
    mine, theirs = groups[label], groups[reference]
    if differs := data_difference(mine[0], theirs[0]):
        return Paired(label, reference, f"not the same devices as {reference}: {differs}")
    by_seed = {run.complete.seed: run for run in theirs}
    both = [(run, by_seed[run.complete.seed]) for run in mine if run.complete.seed in by_seed]
    if not both:
        return Paired(label, reference, f"no seed in common with {reference}")
    if not same_data(theirs, mine):
        return Paired(label, reference, f"not the same devices as {reference}: a different data set of the same name")
    try:
        column = returning_by([run for run, _ in both])
        gained = [values for runs in both if (values := _gains(*runs, column or "device"))]
    except _OtherDevicesError as error:
        return Paired(label, reference, f"not the same devices as {reference}: {error}")
    if not gained:
        return Paired(label, reference, "no device has the metric in both")
    return _figures(Paired(label, reference, seeds=len(both)), gained, column is not None, mine[0].metrics[0])


def _figures(row: Paired, gained: Sequence[Mapping[str, float]], returning: bool, metric: str) -> Paired:
    unit, values = units(gained, returning)
    tested = student(values, FEWEST[unit])
    each = signs(by_key(gained) if returning else np.array([gain for of_seed in gained for gain in of_seed.values()]))
    better = 1 if higher_is_better(metric) else -1
    ends = sorted(better * end for end in tested.interval) if tested else ()
    return replace(
        row,
        unit=unit,
        units=len(values),
        pairs=len(each),
        difference=better * float(values.mean()),
        interval=(ends[0], ends[1]) if ends else None,
        p=tested.p if tested else None,
        better=int(np.sum(each > 0)),
        worse=int(np.sum(each < 0)),
    )


def returning_by(runs: Sequence[Run]) -> str | None:
    """Return the column that identifies the same people in runs of several seeds; None if seeds draw other devices.

    It is `user` if each device is one user of data that is the same under every seed. It is `device` if every seed has
    the same examples on every device, as with a fleet that was built once.
    """
    if len({data_digest(run) for run in runs}) > 1:
        return None
    splits = {run.complete.split_digest for run in runs}
    if len(splits) == 1 and None not in splits:
        return "device"
    users = [[record.get("user") for record in run.devices] for run in runs]
    own = all(None not in of_run and len({*map(str, of_run)}) == len(of_run) for of_run in users)
    return "user" if own else None


def _gains(mine: Run, theirs: Run, key: str) -> Mapping[str, float]:
    """Return the known gains of seen devices over another run of the same seed, by the column `key`.

    Raises:
        _OtherDevicesError: The splits differ, or a device is missing in one of the runs or differs in a column of
            `_SAME`.
    """
    metric, seed = mine.metrics[0], mine.complete.seed
    if None not in (splits := (mine.complete.split_digest, theirs.complete.split_digest)) and splits[0] != splits[1]:
        raise _OtherDevicesError(f"with seed {seed} the devices have different examples or splits")
    references = {record.device: record for record in theirs.devices}
    if {record.device for record in mine.devices} != set(references):
        raise _OtherDevicesError(f"with seed {seed} there are {len(mine.devices)} and {len(references)} devices")
    seen = [record for record in mine.devices if record.seen]
    for record in seen:
        reference = references[record.device]
        for name in _SAME:
            if None not in (found := (record.get(name), reference.get(name))) and found[0] != found[1]:
                raise _OtherDevicesError(
                    f"{name} of device {record.device} with seed {seed} is {found[0]}, but {found[1]} under the reference"
                )
    rows = [{metric: record.get(metric), "reference": references[record.device].get(metric)} for record in seen]
    gained = gains(rows, metric, "reference").tolist()
    keys = [str(record[key]) for record in seen]
    return {key: gain for key, gain in zip(keys, gained, strict=True) if math.isfinite(gain)}
