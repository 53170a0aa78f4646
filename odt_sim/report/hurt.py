"""Devices that a reference would serve better: their fraction with an interval, and how many differ by one example."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odt_sim.metrics.fleet import split_seen
from odt_sim.metrics.names import kind_of
from odt_sim.persistence.run import Run
from odt_sim.report.baseline import known_gains
from odt_sim.report.pairing import returning_by
from odt_sim.report.significance import CONFIDENCE, FEWEST, Array, student, units

COLUMNS = {
    "hurt_local": ("local", False),
    "hurt_global": ("global", False),
    "unseen_hurt_local": ("local", True),
}
"""The columns of the comparison: the reference, and whether the column is for unseen devices."""


@dataclass(frozen=True)
class Hurt:
    """The devices that a reference would serve better, over all seeds.

    Attributes:
        devices: The number of devices with a known gain.
        hurt: The number of these that lose.
        by_one: The number of hurt devices that lose at most one test example; None if the metric does not count
            examples.
        interval: The 95 % interval of the fraction: Wilson's (1927) over devices, or over people who return with every
            seed; Student's t over seeds that draw other devices, or None with too few seeds or equal fractions.
    """

    devices: int
    hurt: int
    by_one: int | None
    interval: tuple[float, float] | None

    @property
    def range(self) -> str:
        """The interval in percent as text; empty without an interval."""
        return f"{100 * self.interval[0]:.0f} to {100 * self.interval[1]:.0f}" if self.interval else ""

    @property
    def one_example(self) -> str:
        """Text on how many hurt devices differ by one example only; empty if no device is hurt or this is unknown."""
        return f"{self.by_one} of {self.hurt} by 1 example" if self.hurt and self.by_one is not None else ""


def hurt_devices(runs: Sequence[Run], reference: str, *, unseen: bool = False) -> Hurt | None:
    """Return how many devices of a configuration a reference would serve better; None if no gain is known.

    Args:
        runs: The runs of the configuration, one per seed.
        reference: `local` or `global`.
        unseen: Whether to count the unseen devices instead of the seen devices.
    """
    column = returning_by(runs)
    key = column or "device"
    losses: list[Array] = []
    indicators: list[dict[str, float]] = []
    for run in runs:
        rows = split_seen(run.devices)[unseen]
        gained = known_gains(rows, run.metrics, reference)
        known = np.isfinite(gained)
        examples = np.array([row["examples"] for row in rows], np.float64)
        losses.append((-gained * examples)[known & (gained < 0)])
        keys = [str(row[key]) for row in rows]
        if of_seed := {each: float(gain < 0) for each, gain in zip(keys, gained, strict=True) if np.isfinite(gain)}:
            indicators.append(of_seed)
    if not indicators:
        return None
    lost = np.concatenate(losses)
    by_one = int(np.sum(lost <= 1 + 1e-6)) if kind_of(runs[0].metrics[0]).counts else None
    return Hurt(sum(map(len, indicators)), len(lost), by_one, _interval(*units(indicators, column is not None)))


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


def _interval(unit: str, values: Array) -> tuple[float, float] | None:
    if unit != "seeds":
        return wilson(float(values.mean()), len(values))
    tested = student(values, FEWEST["seeds"]) if np.ptp(values) else None
    return (max(0.0, tested.interval[0]), min(1.0, tested.interval[1])) if tested else None
