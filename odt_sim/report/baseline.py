"""The gain of each device over a reference: the model that it trains alone, or the global model."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.fleet import Row, gains
from odt_sim.persistence.records import DeviceRecord
from odt_sim.persistence.run import Run
from odt_sim.report.data_settings import data_digest
from odt_sim.report.overrides import shown_overrides

_WITHOUT_EFFECT = ("aggregator", "attack", "backend", "tracker", "strategy")
"""Groups that do not affect local-only training; `strategy.*` belongs to the compared strategy."""


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
    matches = [baselines.get(key(run), run) for run in runs]
    return [run if match is run else _joined(run, match) for run, match in zip(runs, matches, strict=True)]


def training_key(run: Run) -> tuple[Any, ...]:
    """Return a key that is equal for runs with the same local training: all settings except the strategy's own."""
    settings = shown_overrides(run) if run.settings is None else run.settings
    common = {key: value for key, value in settings.items() if key.split(".")[0] not in _WITHOUT_EFFECT}
    return run.settings is None, *sorted(common.items())


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
    devices = (_with_local(record, by_device.get(record.device), run.metrics) for record in run.devices)
    return replace(run, devices=tuple(devices))


def _with_local(record: DeviceRecord, local: DeviceRecord | None, metrics: Sequence[str]) -> DeviceRecord:
    if local is None or local.examples != record.examples:
        return record  # another split of the data: not the same device
    return DeviceRecord.of({**record, **{f"local_{metric}": local.get(metric) for metric in metrics}})
