"""Base class of all trackers, and what they record: settings, numbers, the trained model and the id of a run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from odt_sim.declarations import flatten
from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import Observer
from odt_sim.persistence.run_folder import TRAINED_MODEL


@dataclass(frozen=True)
class WrittenReport:
    """The comparison that a command writes after its run, or after all jobs of its sweep.

    Attributes:
        name: The title of the comparison.
        folder: The folder of the run or the sweep, absolute.
        files: `report.html` and `comparison.json` in the folder.
        figures: The plots in the folder, as PNG files.
        tables: The tables as printed in a terminal with 120 columns.
    """

    name: str
    folder: Path
    files: Sequence[Path]
    figures: Sequence[Path]
    tables: str


class Tracker(Observer):
    """An observer selected with `tracker._target_=package.module.Class`; by default, it tracks nothing."""

    def on_report(self, report: WrittenReport) -> None:
        """Called by `odt-sim run` after its comparison, on a separate tracker that follows no run."""


def trained_model(folder: Path) -> Path | None:
    """Return the absolute path of a run's trained model; None if the server has none, such as with `local`."""
    path = (folder / TRAINED_MODEL).absolute()
    return path if path.exists() else None


def earlier_run_id(folder: Path, tool: str) -> str | None:
    """Return the tool's run id that is saved in a folder; None if no id is saved."""
    file = _file(folder, tool)
    return file.read_text().strip() if file.exists() else None


def keep_run_id(folder: Path, tool: str, run_id: str) -> None:
    """Save the tool's id of a run, or of a sweep's comparison, in its folder."""
    _file(folder, tool).write_text(f"{run_id}\n")


def _file(folder: Path, tool: str) -> Path:
    return folder / f"{tool}_run_id.txt"


def settings_of(config: DictConfig) -> dict[str, Any]:
    """Return a configuration's values by dotted key, without the tracker's: an address may contain a password.

    Raises:
        ConfigurationError: A value refers to a missing key.
    """
    try:
        resolved = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigurationError(f"{error.full_key}: {str(error).splitlines()[0]}; correct it") from error
    assert isinstance(resolved, dict)
    return flatten({str(key): value for key, value in resolved.items() if key != "tracker"})


def round_figures(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers in a round's record, without the round's number."""
    return {key: value for key, value in _numbers(record).items() if key != "round"}


def summary_figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers in a summary by key, such as `summary/metrics/accuracy/mean`."""
    return _numbers({"summary": summary})


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    values = flatten(record, "/").items()
    numbers = {key: float(value) for key, value in values if isinstance(value, Real) and not isinstance(value, bool)}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}
