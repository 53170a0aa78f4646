"""Hydra's own sweeper, over all combinations of values, in folders that hold no other sweep."""

from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

from odt_sim.cli.saved_config import check_new_sweep

BASIC = f"{BasicSweeper.__module__}.{BasicSweeper.__name__}"


class GridSweeper(BasicSweeper):
    """Refuses the folder of another run or sweep before Hydra overwrites the record by which that one resumes."""

    def sweep(self, arguments: list[str]) -> Any:
        """Run the jobs.

        Raises:
            CheckpointError: The folder holds results, and the sweep does not resume them.
        """
        assert self.config is not None
        if self.config.run.resume is None:
            check_new_sweep(Path(self.config.hydra.sweep.dir))
        return super().sweep(arguments)
