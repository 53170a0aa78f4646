"""Distribution of a metric over the devices of a fleet: means, deviation, deciles, worst device, devices hurt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.names import higher_is_better, is_period, period_of

Row = Mapping[str, Any]


@dataclass(frozen=True)
class FleetFigures:
    """Distribution of one metric over devices, in the metric's unit.

    "Bottom" and "worst" mean the badly served devices: the low end of an accuracy, the high end of a loss.

    Attributes:
        devices: Number of devices with a finite value; all other attributes are computed over these.
        weighted_mean: Mean weighted by each device's test examples.
        mean: Mean over devices, unweighted.
        std: Population standard deviation over devices.
        bottom_decile: A tenth of the devices are served worse than this, by linear interpolation (numpy's default).
        top_decile: A tenth of the devices are served better than this; interpolated in the same way.
        worst: The value of the worst-served device.
    """

    devices: int
    weighted_mean: float
    mean: float
    std: float
    bottom_decile: float
    top_decile: float
    worst: float


def fleet_figures(rows: Sequence[Row], metric: str) -> FleetFigures | None:
    """Return the distribution of `metric` over devices.

    Args:
        rows: One mapping per device, with `examples` (the number of test examples, at least 0) and the metric's value.
        metric: A metric's name.

    Returns:
        None if no device with an example has a finite value.
    """
    known = [row for row in rows if row["examples"] > 0 and np.isfinite(_number(row.get(metric)))]
    if not known:
        return None
    values = _column(known, metric)
    low, high = np.quantile(values, [0.1, 0.9]).tolist()
    best_high = higher_is_better(metric)
    return FleetFigures(
        devices=len(known),
        weighted_mean=float(np.average(values, weights=_column(known, "examples"))),
        mean=float(values.mean()),
        std=float(values.std()),
        bottom_decile=low if best_high else high,
        top_decile=high if best_high else low,
        worst=float(values.min() if best_high else values.max()),
    )


def gains(rows: Sequence[Row], metric: str, reference: str) -> NDArray[np.float64]:
    """Return how much better `metric` is than `reference`, `[devices]`: below 0 is worse, NaN is unknown.

    Args:
        rows: One mapping per device.
        metric: A metric's name.
        reference: The column to compare with, such as `local_accuracy`.
    """
    difference = _column(rows, metric) - _column(rows, reference)
    return difference if higher_is_better(metric) else -difference


def fraction_hurt(gained: NDArray[np.float64]) -> float | None:
    """Return the fraction (0 to 1) of devices with a negative gain among those with a known gain; None without any."""
    known = gained[np.isfinite(gained)]
    return float(np.mean(known < 0)) if known.size else None


def evaluation_columns(rows: Sequence[Row], metrics: Sequence[str]) -> dict[str, float | None]:
    """Return the columns that an evaluated round adds to its record.

    Args:
        rows: One mapping per device, with `seen`, `examples`, the metrics, and `validation_examples` and the metrics
            on them if it has any.
        metrics: The metrics of the run's model, the one to compare by first.

    Returns:
        For each metric m: `m` (example-weighted mean over seen devices), `m_unweighted`, `m_unseen` (unweighted mean over
        unseen devices), and `validation_m` (mean over seen devices, weighted by their validation examples). A column is
        absent if no device has a finite value. But `m` and `validation_m` of the first metric are None if only other
        metrics have a value, so that none of these becomes the first. `validation_devices` is the number of devices in
        the mean of the first metric on validation examples. If examples arrive over time, there are `period_1_m`,
        `period_2_m`, ... for the first metric.
    """
    seen, unseen = split_seen(rows)
    validated = [measured_as(row, "validation", metrics, "validation_examples") for row in seen]
    columns: dict[str, float | None] = {}
    for metric in metrics:
        if figures := fleet_figures(seen, metric):
            columns |= {metric: figures.weighted_mean, f"{metric}_unweighted": figures.mean}
        if figures := fleet_figures(unseen, metric):
            columns[f"{metric}_unseen"] = figures.mean
        if figures := fleet_figures(validated, metric):
            columns[f"validation_{metric}"] = figures.weighted_mean
    if figures := fleet_figures(validated, metrics[0]):
        columns["validation_devices"] = figures.devices
    for prefix in ("validation_", ""):
        first, *others = (f"{prefix}{metric}" for metric in metrics)
        if first not in columns and any(other in columns for other in others):
            columns = {first: None, **columns}
    return {**columns, **_period_columns(seen, metrics[0])}


def _period_columns(seen: Sequence[Row], metric: str) -> dict[str, float | None]:
    """Return the mean of each period's column over the devices that have it, weighted by their test examples.

    It is None if the metric is undefined on all of them, since the round still belongs to that period.
    """
    columns = sorted({name for row in seen for name in row if is_period(name, metric)}, key=period_of)
    means = {
        name: fleet_figures([{"examples": row.get("examples", 0), metric: row.get(name)} for row in seen], metric)
        for name in columns
    }
    return {name: figures.weighted_mean if figures else None for name, figures in means.items()}


def measured_as(row: Row, prefix: str, metrics: Sequence[str], examples: str = "examples") -> Row:
    """Return the metrics of a device under a prefix, as input for `fleet_figures`.

    Args:
        row: The metrics of one device.
        prefix: `validation`, `train`, `others` and so on.
        metrics: The names of the metrics.
        examples: The column that weights the device; 0 if it has none.
    """
    figures = {metric: row.get(f"{prefix}_{metric}") for metric in metrics}
    return {"examples": row.get(examples, 0), **figures}


def split_seen(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of the seen devices, which take part in training, and of the unseen devices."""
    return [row for row in rows if row["seen"]], [row for row in rows if not row["seen"]]


def _column(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    return np.array([_number(row.get(name)) for row in rows], np.float64)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def gini(counts: NDArray[Any]) -> float | None:
    """Return the Gini coefficient of counts: 0 if all are equal, close to 1 if one device has all.

    It is half of the mean absolute difference of all pairs relative to the mean (Gini, 1912), computed from sorted
    counts.

    Args:
        counts: `[devices]`, at least 0.

    Returns:
        None without devices or if all counts are 0.
    """
    ordered = np.sort(np.asarray(counts, np.float64))
    total, devices = ordered.sum(), len(ordered)
    if not total:
        return None
    return float((2 * np.arange(1, devices + 1) - devices - 1) @ ordered / (devices * total))
