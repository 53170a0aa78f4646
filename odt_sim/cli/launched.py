"""What the command keeps of a sweep that a launcher may run in other processes."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig


class LaunchedSweep(Callback):
    """Keeps the folder of this process's last sweep: Hydra returns nothing of it, and launchers run jobs elsewhere.

    Attributes:
        folder: The sweep's folder; None if no sweep has started.
    """

    folder: Path | None = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Keep the folder."""
        LaunchedSweep.folder = Path(config.hydra.sweep.dir)
