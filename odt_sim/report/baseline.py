"""What each device gains over another model: the one it would have trained alone, or the one that all share."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.fleet import Row, gains
from odt_sim.persistence.records import DeviceRecord
from odt_sim.persistence.run import Run
from odt_sim.report.conditions import digest
from odt_sim.report.labels import overrides_of

_WITHOUT_EFFECT = ("aggregator", "backend", "tracker", "strategy")
"""Groups that do not change what a device trains alone; `strategy.*` belongs to the other strategy."""


def join_local(runs: Sequence[Run], alike: Callable[[Run], Hashable]) -> list[Run]:
    """Returns the runs with the columns `local_m` of every device taken from the matching run of the strategy `local`.

    A run without a match keeps the columns that it recorded itself. Where several match, the first counts.

    Args:
        runs: Complete runs.
        alike: What is equal for runs that match, apart from their seed: `same_training` for a baseline of the same
            settings, `same_conditions` for one whose settings were chosen for itself.
    """
    baselines: dict[Any, Run] = {}
    for run in runs:
        if run.name == "local":
            baselines.setdefault((run.complete["seed"], digest(run), alike(run)), run)
    matches = [baselines.get((run.complete["seed"], digest(run), alike(run)), run) for run in runs]
    return [run if match is run else _joined(run, match) for run, match in zip(runs, matches, strict=True)]


def same_training(run: Run) -> tuple[Any, ...]:
    """Returns what is equal for runs whose devices would reach the same alone: all settings but the strategy's own.

    Of a run that recorded no settings its overrides tell it, apart from those that have no effect on local training.
    """
    settings = overrides_of(run) if run.settings is None else run.settings
    common = {key: value for key, value in settings.items() if key.split(".")[0] not in _WITHOUT_EFFECT}
    return run.settings is None, *sorted(common.items())


def known_gains(rows: Sequence[Row], metrics: Sequence[str], reference: str) -> NDArray[np.float64]:
    """Returns `[devices]` by how much the first metric is better than the reference's, all NaN where that is no question.

    It is none where the devices' models are the reference itself: where all their metrics are equal to its own.

    Args:
        rows: One mapping a device.
        metrics: The task's metrics.
        reference: `local` or `global`.
    """
    differences = np.array([gains(rows, metric, f"{reference}_{metric}") for metric in metrics])
    gained: NDArray[np.float64] = differences[0]
    return gained if np.any(np.nan_to_num(differences)) else np.full_like(gained, np.nan)


def _joined(run: Run, baseline: Run) -> Run:
    by_device = {row["device"]: row for row in baseline.devices}
    return replace(
        run, devices=tuple(_with_local(row, by_device.get(row["device"]), run.metrics) for row in run.devices)
    )


def _with_local(row: DeviceRecord, local: DeviceRecord | None, metrics: Sequence[str]) -> DeviceRecord:
    if local is None or local["examples"] != row["examples"]:
        return row  # another split of the data: not the same device
    return DeviceRecord.of({**row, **{f"local_{metric}": local.get(metric) for metric in metrics}})
