"""Hydra's sweeper over all combinations of values, in folders that contain no other sweep."""

from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

from odt_sim.cli.saved_config import check_new_sweep

BASIC = f"{BasicSweeper.__module__}.{BasicSweeper.__name__}"


class GridSweeper(BasicSweeper):
    """A sweeper that refuses the folder of another run or sweep, before Hydra overwrites its files for resuming."""

    def sweep(self, arguments: list[str]) -> Any:
        """Run the jobs.

        Raises:
            CheckpointError: The folder contains results, and the sweep does not resume them.
        """
        assert self.config is not None
        if self.config.run.resume is None:
            check_new_sweep(Path(self.config.hydra.sweep.dir))
        return super().sweep(arguments)
