"""The command `odt-sim report`: compare runs on disk."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from odt_sim.report.comparison import Comparison
    from odt_sim.report.page import Section


def report(arguments: Sequence[str]) -> int:
    """Print the comparison of runs, write its page and return the exit code."""
    parser = argparse.ArgumentParser("odt-sim report", description="Compare runs on disk.")
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR", help="a run's folder, or one that contains runs"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page; by default report.html in DIR")
    parser.add_argument(
        "--best", action="store_true", help="show only the configuration of each strategy that validates best"
    )
    parser.add_argument("--against", metavar="LABEL", help="the strategy or row to compare the others with")
    parser.add_argument(
        "--target", type=float, metavar="VALUE", help="report the number of rounds to this mean, such as 0.9"
    )
    parser.add_argument("--metric", metavar="NAME", help="compare by this metric instead of the runs' first one")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a row per configuration, for other programs")
    parser.add_argument("--latex", type=Path, metavar="FILE", help="write the tables for LaTeX with booktabs")
    options = vars(parser.parse_intermixed_args(arguments))
    folders = options.pop("folders")
    print_comparison(folders, further=_tunings(folders), **options)
    return 0


def _tunings(folders: Sequence[Path]) -> "list[Section]":
    """Return a section for each folder of a tuning."""
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
    further: "Sequence[Section]" = (),
    **options: Any,
) -> "Comparison":
    """Write the report page, print the tables and the page's path, and return the comparison.

    Args:
        folders: Run folders, or folders that contain runs.
        output: The page's path, by default `report.html` in the folder.
        csv: The path for a CSV table of the configurations; None for no such file.
        latex: The path for the tables in LaTeX; None for no such file.
        further: Sections to add to the page's own.
        options: Options of `odt_sim.report.comparison.compare`.

    Raises:
        CheckpointError: A folder contains no run.
        FileError: The page cannot be written.
        ConfigurationError: The options do not fit the runs.
    """
    from rich.console import Console

    from odt_sim._support.files import write_file
    from odt_sim.cli.libyaml import use_libyaml
    from odt_sim.report.comparison import compare
    from odt_sim.report.comparison_csv import comparison_csv
    from odt_sim.report.latex import latex as latex_tables
    from odt_sim.report.page import page_path, write_report
    from odt_sim.simulation.submitted import is_submitted

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
    from odt_sim.report.table import comparison_table, differences_text, paired_table

    tables = (comparison_table(comparison, console.width), paired_table(comparison, console.width))
    for table in (*tables, differences_text(comparison)):
        if table is not None:
            console.print()
            console.print(table)
