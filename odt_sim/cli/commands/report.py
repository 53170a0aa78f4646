"""The command `odt-sim report`: compare runs on disk."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odt_sim.cli.command_table import parsed

if TYPE_CHECKING:
    from rich.console import Console

    from odt_sim.report.comparison import Comparison
    from odt_sim.report.table import Table
    from odt_sim.trackers.base import WrittenReport

TRACKED_WIDTH = 120
"""The width of the tables in a tracker's report in characters."""


def report(arguments: Sequence[str]) -> int:
    """Print the comparison of runs, write its page and return the exit code."""
    options = vars(parsed("report", arguments))
    folders = options.pop("folders")
    print_comparison(folders, further=_tunings(folders), **options)
    return 0


def _tunings(folders: Sequence[Path]) -> "list[Table]":
    """Return a table for each folder of a tuning."""
    from odt_sim.persistence.run_folder import TUNING

    found = [path for folder in folders if (path := folder / TUNING).is_file()]
    if not found:
        return []
    from odt_sim.tuning.tables import saved_section

    return [saved_section(path) for path in found]


def print_comparison(
    folders: Sequence[Path],
    output: Path | None = None,
    *,
    csv: Path | None = None,
    latex: Path | None = None,
    further: "Sequence[Table]" = (),
    **options: Any,
) -> "Comparison":
    """Write the report page, print the tables and the page's path, and return the comparison.

    Args:
        folders: Run folders, or folders that contain runs.
        output: The page's path, by default `report.html` in the folder.
        csv: The path for a CSV table of the configurations; None for no such file.
        latex: The path for the tables in LaTeX; None for no such file.
        further: Tables to add to the page's own.
        options: Options of `odt_sim.report.comparison.compare`.

    Raises:
        CheckpointError: A folder contains no run.
        FileError: The page cannot be written.
        ConfigurationError: The options do not fit the runs.
    """
    from rich.console import Console

    from odt_sim._support.files import write_file
    from odt_sim.cli.hydra.settings import use_libyaml
    from odt_sim.report.comparison import compare
    from odt_sim.report.page import page_path, write_report
    from odt_sim.report.records import comparison_csv
    from odt_sim.report.sections import latex as latex_tables
    from odt_sim.simulation.executors.submitted import is_submitted

    use_libyaml()  # three files of each run
    comparison = compare(folders, **options)
    page = output or page_path(folders)
    write_report(comparison, page, further)
    for path, write in ((csv, comparison_csv), (latex, latex_tables)):
        if path is not None:
            write_file(path, write(comparison).encode())
    console = Console()
    print_tables(comparison, console)
    paths = [path for path in (page, csv, latex) if path is not None]
    written = ", ".join(str(path.absolute() if is_submitted() else path) for path in paths)
    console.print(f"\nreport: {written}", soft_wrap=True, highlight=False, markup=False)
    return comparison


def print_tables(comparison: "Comparison", console: "Console") -> None:
    """Print the comparison as tables that fit the console."""
    from odt_sim.report.terminal import comparison_text, differences_text, paired_text

    parts = (comparison_text(comparison, console.width), paired_text(comparison, console.width))
    for part in (*parts, differences_text(comparison)):
        if part is not None:
            console.print()
            console.print(part)


def track_report(comparison: "Comparison", folder: Path) -> None:
    """Pass the report in a folder to the tracker of the first run there; if the tracker fails, print a warning.

    The comparison of a sweep exists only after its jobs, which some launchers run in other processes. Therefore the
    tracker is built again.
    """
    from odt_sim._support.user_code import user_code_errors
    from odt_sim.cli.hydra.components import build
    from odt_sim.cli.hydra.saved_config import is_saved, saved_tracker
    from odt_sim.cli.messages import warn
    from odt_sim.errors import OdtSimError, SimulationError
    from odt_sim.persistence.run import find_runs

    try:
        node = next((saved_tracker(path) for path in find_runs([folder]) if is_saved(path)), None)
        if node is None:
            return
        tracker = build(node, "tracker")
        with user_code_errors(tracker, f"{type(tracker).__name__}.on_report: failed", SimulationError):
            tracker.on_report(_written(comparison, folder.absolute()))
    except OdtSimError as error:
        warn(str(error))


def _written(comparison: "Comparison", folder: Path) -> "WrittenReport":
    from odt_sim.report import description
    from odt_sim.trackers.base import WrittenReport

    return WrittenReport(
        name=f"report: {description.title(comparison)}",
        folder=folder,
        files=[folder / "report.html", folder / "comparison.json"],
        figures=sorted((folder / "figures").glob("*.png")),
        tables=_text(comparison),
    )


def _text(comparison: "Comparison") -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=TRACKED_WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as capture:
        print_tables(comparison, console)
    return capture.get().strip("\n")
