"""A Hydra callback that records the folder of a sweep, whose jobs a launcher may run in other processes."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig


class LaunchedSweep(Callback):
    """Records the folder of this process's last sweep: Hydra does not return it, and launchers may run jobs elsewhere.

    Attributes:
        folder: The sweep's folder; None if no sweep has started.
    """

    folder: Path | None = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Record the folder."""
        LaunchedSweep.folder = Path(config.hydra.sweep.dir)
