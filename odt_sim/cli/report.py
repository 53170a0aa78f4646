"""The command `odt-sim report`: compare runs that are on disk."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def report(arguments: Sequence[str]) -> int:
    """Print the comparison of runs, write its page and return the exit code."""
    parser = argparse.ArgumentParser("odt-sim report", description="Compare runs that are on disk.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a run's folder, or one that holds runs")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page; by default report.html in DIR")
    parser.add_argument(
        "--best", action="store_true", help="of each strategy only the configuration that validates best"
    )
    parser.add_argument("--against", metavar="LABEL", help="the strategy or row to compare the others with")
    parser.add_argument("--target", type=float, metavar="VALUE", help="count the rounds to this mean, such as 0.9")
    options = vars(parser.parse_args(arguments))
    print_comparison(options.pop("folders"), **options)
    return 0


def print_comparison(folders: Sequence[Path], output: Path | None = None, **options: Any) -> int:
    """Write the report page, print the tables and the page's path, and return how many runs failed.

    Args:
        folders: Run folders, or folders that hold runs.
        output: The page's path, by default `report.html` in the folder.
        options: Of `odt_sim.report.comparison.compare`.

    Raises:
        CheckpointError: A folder holds no run.
        FileError: The page cannot be written.
        ConfigurationError: The options do not fit the runs.
    """
    from rich.console import Console

    from odt_sim.report.comparison import compare
    from odt_sim.report.page import page_path, write_report
    from odt_sim.report.table import comparison_table, paired_table

    comparison = compare(folders, **options)
    page = output or page_path(folders)
    write_report(comparison, page)
    console = Console()
    for table in (comparison_table(comparison, console.width), paired_table(comparison, console.width)):
        if table is not None:
            console.print()
            console.print(table)
    console.print(f"\nreport: {page}", soft_wrap=True, highlight=False, markup=False)
    return len(comparison.failures)
