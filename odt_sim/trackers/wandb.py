"""Weights & Biases tracker: a run in a project, on its server or in files that `wandb sync` uploads later."""

import os
from pathlib import Path
from typing import Any

from odt_sim._support.system import package
from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.summary import Summary
from odt_sim.trackers.base import (
    Tracker,
    WrittenReport,
    earlier_run_id,
    keep_run_id,
    round_figures,
    summary_figures,
    trained_model,
)

MODES = ("online", "offline")
SECONDS_TO_DISK = 1.0
"""Interval between writes of a run's file; a killed run loses the data since the last one. wandb's default is 15 s."""


class WandB(Tracker):
    """Tracker that logs settings as configuration, metrics by round, and the trained model and the report as artifacts.

    Its files are in `wandb/` in the run's folder.
    """

    waits = True

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
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # otherwise wandb contacts its server
        self._library = package("wandb", "tracker=wandb: cannot import wandb", "wandb")
        self._project, self._mode = project, mode

    def on_begin(self, run: RunInfo) -> None:
        """Create the run, or reopen it if it is resumed."""
        earlier = earlier_run_id(run.folder, "wandb") if run.recorded else None
        self._folder, self._run = run.folder, self._open(run.name, run.folder, earlier, dict(run.settings))

    def on_round(self, record: RoundRecord) -> None:
        """Log the round's numbers, with the round as the step."""
        self._run.log(round_figures(record), step=record.round)

    def on_end(self, summary: Summary | None) -> None:
        """Add the summary's numbers and the trained model, and end the run as finished or failed."""
        if summary is not None:
            self._run.summary.update(summary_figures(summary))
            if model := trained_model(self._folder):
                artifact = self._library.Artifact(f"model-{self._run.id}", type="model")
                artifact.add_file(str(model))
                self._run.log_artifact(artifact)
        self._run.finish(exit_code=1 if summary is None else 0)

    def on_report(self, report: WrittenReport) -> None:
        """Log the report to the run, or to a separate run for a sweep; log its figures also as images."""
        run = self._open(report.name, report.folder, earlier_run_id(report.folder, "wandb"), {})
        artifact = self._library.Artifact(f"report-{run.id}", type="report")
        for file in report.files:
            artifact.add_file(str(file))
        for figure in report.figures:
            artifact.add_file(str(figure), f"figures/{figure.name}")
        run.log_artifact(artifact)
        run.log({f"report/{figure.stem}": self._library.Image(str(figure)) for figure in report.figures})
        run.finish()

    def _open(self, name: str, folder: Path, earlier: str | None, config: dict[str, Any]) -> Any:
        """Create a run, or reopen an earlier one; store its id in the folder."""
        run = self._library.init(
            project=self._project,
            name=None if earlier else name,
            config=config,
            dir=folder.absolute(),  # wandb's service has a different working directory
            mode=self._mode,
            id=earlier,
            resume="allow" if earlier else None,
            settings=self._settings(),
        )
        keep_run_id(folder, "wandb", run.id)
        return run

    def _settings(self) -> Any:
        """Return wandb's settings."""
        settings = self._library.Settings(console="off")  # capturing the terminal disturbs the live display
        if hasattr(settings, "x_transaction_log_flush_interval"):  # not in older versions
            settings.x_transaction_log_flush_interval = SECONDS_TO_DISK
        return settings
