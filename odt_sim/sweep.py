"""What follows a sweep: the comparison over all of its jobs."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console

from odt_sim.report.comparison import compare
from odt_sim.report.page import report
from odt_sim.report.table import comparison_table


class CompareJobs(Callback):
    """Prints the comparison when a sweep's jobs have ended, wherever a launcher ran them.

    Attributes:
        failed: How many jobs of this process's last sweep failed.
    """

    failed = 0

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Compares the jobs of the sweep's folder; Hydra calls it."""
        CompareJobs.failed = print_comparison([Path(config.hydra.sweep.dir)])


def print_comparison(folders: list[Path], output: Path | None = None) -> int:
    """Writes the report page, prints the table and the page's path, and returns how many runs failed.

    Raises:
        CheckpointError: A folder holds no run, or a damaged one.
    """
    page = report(folders, output)
    comparison = compare(folders)
    console = Console()
    console.print()
    console.print(comparison_table(comparison, console.width))
    console.print(f"\nreport: {page}", soft_wrap=True, highlight=False)
    return len(comparison.failures)
