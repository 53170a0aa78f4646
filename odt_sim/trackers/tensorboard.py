"""TensorBoard: event files in the run's folder."""

import re

from odt_sim.observers.base import RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.summary import Summary
from odt_sim.trackers.base import Tracker, required
from odt_sim.trackers.flat import round_figures, summary_figures

END = ".end"
"""The suffix of the event file with the status of the run."""


class TensorBoard(Tracker):
    """Writes scalars by round, and the settings for the HPARAMS page, to `tensorboard/NAME` in the run's folder."""

    def __init__(self) -> None:
        """Import TensorBoard.

        Raises:
            ConfigurationError: It is not installed.
        """
        required("tensorboard", "tensorboard")

    def on_begin(self, run: RunInfo) -> None:
        """Create an event file; TensorBoard shows those of a resumed run as one."""
        from odt_sim.trackers.event_file import EventFile

        self._folder = run.folder / "tensorboard" / re.sub(r"[^\w.,=+ -]", "_", run.name, flags=re.ASCII)[:100]
        for end in self._folder.glob(f"*{END}"):
            end.unlink()  # TensorBoard uses the first status that it reads
        self._events = EventFile(self._folder)
        self._events.add_hyper_parameters(
            {key: value if isinstance(value, int | float | str) else str(value) for key, value in run.settings.items()}
        )

    def on_round(self, record: RoundRecord) -> None:
        """Write the round's figures; an open page shows them soon."""
        self._events.add_scalars(round_figures(record), record.round)

    def on_end(self, summary: Summary | None) -> None:
        """Write the summary's figures and the run's status."""
        from odt_sim.trackers.event_file import EventFile

        if summary is not None:
            self._events.add_scalars(summary_figures(summary), summary.rounds)
        self._events.close()
        end = EventFile(self._folder, END)
        end.add_end(succeeded=summary is not None)
        end.close()
