"""Pass the report of a command to the tracker of its runs."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.utils import get_object
from omegaconf import DictConfig
from rich.console import Console

from odt_sim._support.user_code import user_code_errors
from odt_sim.cli.components import build
from odt_sim.cli.messages import warn
from odt_sim.cli.report import print_tables
from odt_sim.cli.saved_config import is_saved, saved_tracker
from odt_sim.errors import OdtSimError, SimulationError
from odt_sim.persistence.run import find_runs
from odt_sim.trackers.base import Tracker, WrittenReport

if TYPE_CHECKING:
    from odt_sim.report.comparison import Comparison

WIDTH = 120
"""The width of the tables in characters."""


def track_report(comparison: "Comparison", folder: Path) -> None:
    """Pass the report in a folder to the tracker of the first run there; if the tracker fails, print a warning.

    The comparison of a sweep exists only after its jobs, which some launchers run in other processes. Therefore the
    tracker is built again.
    """
    try:
        node = next((saved_tracker(path) for path in find_runs([folder]) if is_saved(path)), None)
        if not _takes_reports(node):
            return
        tracker: Tracker = build(node, "tracker")
        with user_code_errors(tracker, f"{type(tracker).__name__}.on_report: failed", SimulationError):
            tracker.on_report(_written(comparison, folder.absolute()))
    except OdtSimError as error:
        warn(str(error))


def _takes_reports(node: DictConfig | None) -> bool:
    kind = get_object(node._target_) if node else Tracker
    return isinstance(kind, type) and issubclass(kind, Tracker) and kind.on_report is not Tracker.on_report


def _written(comparison: "Comparison", folder: Path) -> WrittenReport:
    from odt_sim.report import description

    return WrittenReport(
        name=f"report: {description.title(comparison)}",
        folder=folder,
        files=[folder / "report.html", folder / "comparison.json"],
        figures=sorted((folder / "figures").glob("*.png")),
        tables=_text(comparison),
    )


def _text(comparison: "Comparison") -> str:
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as capture:
        print_tables(comparison, console)
    return capture.get().strip("\n")
