"""Base class of all trackers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
