"""Warnings about the folders for results of `odt-sim run`, before the first job."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from odt_sim.cli.messages import warn
from odt_sim.simulation.submitted import is_submitted, lost


class Places(Callback):
    """Warns about results that Ray would delete, and about `hydra.run.dir` if Hydra ignores it."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Warn about a run."""
        if is_submitted():
            warn(lost(Path(config.hydra.run.dir), "hydra.run.dir"))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Warn about a sweep."""
        if any(override.startswith("hydra.run.dir=") for override in config.hydra.overrides.hydra):
            warn("hydra.run.dir is ignored with -m; set the sweep's folder with hydra.sweep.dir")
        warn(lost(Path(config.hydra.sweep.dir), "hydra.sweep.dir"))
