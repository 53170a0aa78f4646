"""Weights & Biases: a run in a project, on its server or in files that `wandb sync` sends later."""

import os

from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.summary import Summary
from odt_sim.trackers.base import Tracker, earlier_run_id, keep_run_id, required
from odt_sim.trackers.flat import round_figures, summary_figures

MODES = ("online", "offline")


class WandB(Tracker):
    """Logs the settings as the run's configuration, and figures by round; its files are in `wandb/` in the run's folder."""

    def __init__(self, project: str, mode: str) -> None:
        """Import wandb.

        Args:
            project: The project's name.
            mode: `online` or `offline`.

        Raises:
            ConfigurationError: The mode is unknown, or wandb is not installed.
        """
        if mode not in MODES:
            raise ConfigurationError(f"tracker.mode: expected {' or '.join(MODES)}, found {mode!r}")
        if mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # wandb would contact its server
        self._library = required("wandb", "wandb")
        self._project, self._mode = project, mode

    def on_begin(self, run: RunInfo) -> None:
        """Create the run, or reopen the one that is resumed."""
        earlier = earlier_run_id(run, "wandb")
        self._run = self._library.init(
            project=self._project,
            name=run.name,
            config=dict(run.settings),
            dir=run.folder,
            mode=self._mode,
            id=earlier,
            resume="allow" if earlier else None,
            settings=self._library.Settings(console="off"),  # a captured terminal disturbs the live display
        )
        keep_run_id(run, "wandb", self._run.id)

    def on_round(self, record: RoundRecord) -> None:
        """Log the round's figures, with the round as their step."""
        self._run.log(round_figures(record), step=record.round)

    def on_end(self, summary: Summary | None) -> None:
        """Add the summary's figures and end the run as finished or failed."""
        if summary is not None:
            self._run.summary.update(summary_figures(summary))
        self._run.finish(exit_code=1 if summary is None else 0)
