"""TensorBoard tracker: event files in the run's folder."""

import re
import shutil

from odt_sim._support.system import package
from odt_sim.observers.base import RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.summary import Summary
from odt_sim.trackers.base import Tracker, WrittenReport, round_figures, summary_figures, trained_model

START, END = ".start", ".end"
"""Suffixes of the event files with the settings and with the status of the run."""


class TensorBoard(Tracker):
    """Tracker that writes scalars by round and settings for the HPARAMS page to `tensorboard/NAME` in the run folder.

    TensorBoard has no artifacts, so the path of the trained model and the tables are texts, and the figures are images.
    """

    waits = True

    def __init__(self) -> None:
        """Import TensorBoard.

        Raises:
            ConfigurationError: TensorBoard is not installed.
        """
        package("tensorboard", "tracker=tensorboard: cannot import tensorboard", "tensorboard")
        from odt_sim.trackers.event_file import EventFile

        self._event_file = EventFile

    def on_begin(self, run: RunInfo) -> None:
        """Create event files; TensorBoard shows the files of a resumed run as one run, with its current settings."""
        self._run_folder = run.folder
        self._folder = run.folder / "tensorboard" / re.sub(r"[^\w.,=+ -]", "_", run.name, flags=re.ASCII)[:100]
        for replaced in (*self._folder.glob(f"*{START}"), *self._folder.glob(f"*{END}")):
            replaced.unlink()  # TensorBoard uses the first settings and the first status that it reads
        start = self._event_file(self._folder, START)
        start.add_hyper_parameters(
            {key: value if isinstance(value, int | float | str) else str(value) for key, value in run.settings.items()}
        )
        start.close()
        self._events = self._event_file(self._folder)

    def on_round(self, record: RoundRecord) -> None:
        """Write the round's numbers; an open page shows them soon."""
        self._events.add_scalars(round_figures(record), record.round)

    def on_end(self, summary: Summary | None) -> None:
        """Write the summary's numbers, the path of the trained model, and the run's status."""
        if summary is not None:
            self._events.add_scalars(summary_figures(summary), summary.rounds)
            if model := trained_model(self._run_folder):
                self._events.add_text("model", f"`{model}`")
        self._events.close()
        end = self._event_file(self._folder, END)
        end.add_end(succeeded=summary is not None)
        end.close()

    def on_report(self, report: WrittenReport) -> None:
        """Write the report to `tensorboard/report` in the folder of the run or the sweep; replace an earlier one."""
        folder = report.folder / "tensorboard" / "report"
        shutil.rmtree(folder, ignore_errors=True)
        events = self._event_file(folder)
        events.add_text("report", f"```\n{report.tables}\n```\n\n`{report.files[0]}`")
        for figure in report.figures:
            events.add_image(f"report/{figure.stem}", figure.read_bytes())
        events.close()
