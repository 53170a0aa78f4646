"""The gain of each device over a reference, its local-only or the global model, and the devices that it hurts."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.fleet import Row, gains, split_seen
from odt_sim.persistence.records import DeviceRecord
from odt_sim.persistence.run import Run
from odt_sim.report.pairing import returning_by
from odt_sim.report.run_settings import data_digest
from odt_sim.report.significance import CONFIDENCE, FEWEST, student, units

_WITHOUT_EFFECT = ("aggregator", "attack", "backend", "tracker", "strategy")
"""Groups that do not affect local-only training; `strategy.*` belongs to the compared strategy."""

HURT_COLUMNS = {
    "hurt_local": ("local", False),
    "hurt_global": ("global", False),
    "unseen_hurt_local": ("local", True),
}
"""The columns of hurt devices: the reference, and whether the column is for unseen devices."""


def join_local(runs: Sequence[Run], match_key: Callable[[Run], Hashable]) -> list[Run]:
    """Return the runs with the `local_<metric>` columns of the matching run of the strategy `local`.

    A run without a match keeps its columns. The first of several matches is used.

    Args:
        runs: Complete runs.
        match_key: A key that is equal for matching runs of one seed: `training_key` for a baseline with the same
            settings, `data_key` for a baseline with its own settings.
    """

    def key(run: Run) -> Hashable:
        return run.complete.seed, data_digest(run), match_key(run)

    baselines: dict[Hashable, Run] = {}
    for run in runs:
        if run.name == "local":
            baselines.setdefault(key(run), run)
    return [run if (match := baselines.get(key(run), run)) is run else _joined(run, match) for run in runs]


def training_key(run: Run) -> tuple[Any, ...]:
    """Return a key that is equal for runs with the same local training: all settings except the strategy's own."""
    return tuple(sorted(item for item in run.settings.items() if item[0].split(".")[0] not in _WITHOUT_EFFECT))


def known_gains(rows: Sequence[Row], metrics: Sequence[str], reference: str) -> NDArray[np.float64]:
    """Return the gain in the first metric, `[devices]`; all NaN if the devices' models are the reference itself.

    They are the reference if all their metrics equal those of the reference.

    Args:
        rows: One mapping per device.
        metrics: The task's metrics.
        reference: `local` or `global`.
    """
    differences = np.array([gains(rows, metric, f"{reference}_{metric}") for metric in metrics])
    gained: NDArray[np.float64] = differences[0]
    return gained if np.any(np.nan_to_num(differences)) else np.full_like(gained, np.nan)


def _joined(run: Run, baseline: Run) -> Run:
    by_device = {record.device: record for record in baseline.devices}
    devices = []
    for record in run.devices:
        local = by_device.get(record.device)
        if local is not None and local.examples == record.examples:  # otherwise another split: not the same device
            record = DeviceRecord.of({**record, **{f"local_{m}": local.get(m) for m in run.metrics}})
        devices.append(record)
    return replace(run, devices=tuple(devices))


@dataclass(frozen=True)
class Hurt:
    """The devices that a reference would serve better, over all seeds.

    Attributes:
        devices: The number of devices with a known gain.
        hurt: The number of these that lose.
        interval: The 95 % interval of the fraction: Wilson's (1927) over devices, or over people who return with every
            seed; Student's t over seeds that draw other devices, or None with too few seeds or equal fractions.
    """

    devices: int
    hurt: int
    interval: tuple[float, float] | None

    @property
    def range(self) -> str:
        """The interval in percent as text; empty without an interval."""
        return f"{100 * self.interval[0]:.0f} to {100 * self.interval[1]:.0f}" if self.interval else ""


def hurt_devices(runs: Sequence[Run], reference: str, *, unseen: bool = False) -> Hurt | None:
    """Return how many devices of a configuration a reference would serve better; None if no gain is known.

    Args:
        runs: The runs of the configuration, one per seed.
        reference: `local` or `global`.
        unseen: Whether to count the unseen devices instead of the seen devices.
    """
    column = returning_by(runs)
    key = column or "device"
    indicators: list[dict[str, float]] = []
    for run in runs:
        rows = split_seen(run.devices)[unseen]
        gained = known_gains(rows, run.metrics, reference)
        keys = [str(row[key]) for row in rows]
        if of_seed := {each: float(gain < 0) for each, gain in zip(keys, gained, strict=True) if np.isfinite(gain)}:
            indicators.append(of_seed)
    if not indicators:
        return None
    unit, values = units(indicators, column is not None)
    interval = None
    if unit != "seeds":
        interval = wilson(float(values.mean()), len(values))
    elif np.ptp(values) and (tested := student(values, FEWEST[unit])):
        interval = max(0.0, tested.interval[0]), min(1.0, tested.interval[1])
    hurt = sum(sum(of_seed.values()) for of_seed in indicators)
    return Hurt(sum(map(len, indicators)), int(hurt), interval)


def wilson(fraction: float, count: int) -> tuple[float, float]:
    """Return the score interval of a fraction of independent cases (Wilson, 1927): never empty, and within 0 and 1.

    Args:
        fraction: The fraction; for means over several measurements the interval is rather too wide than too narrow.
        count: The number of cases.
    """
    from scipy.special import ndtri

    z = float(ndtri((1 + CONFIDENCE) / 2))
    centre = (fraction + z * z / (2 * count)) / (1 + z * z / count)
    half = z * (fraction * (1 - fraction) / count + (z / (2 * count)) ** 2) ** 0.5 / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)
