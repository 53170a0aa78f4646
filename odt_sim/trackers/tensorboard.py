"""TensorBoard: event files in the run's folder."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odt_sim.persistence.records import Row
from odt_sim.trackers.base import Tracker
from odt_sim.trackers.extra import required
from odt_sim.trackers.flat import round_figures, summary_figures

END = ".end"
"""How the name of the event file ends that says how the run ended."""


class TensorBoard(Tracker):
    """Writes scalars by round, and the settings for the HPARAMS page, to `tensorboard/NAME` in the run's folder."""

    def __init__(self) -> None:
        """Looks for TensorBoard.

        Raises:
            ConfigurationError: It is not installed.
        """
        required("tensorboard", "tensorboard")

    def start(self, name: str, settings: Mapping[str, Any], folder: Path) -> None:
        """Begins an event file; that of a resumed run is beside the earlier one, so that they are one run."""
        from odt_sim.trackers.event_file import EventFile

        self._folder = folder / "tensorboard" / re.sub(r"[^\w.,=+ -]", "_", name, flags=re.ASCII)[:100]
        for end in self._folder.glob(f"*{END}"):
            end.unlink()  # the run goes on, and TensorBoard would believe the first end that it reads
        self._events = EventFile(self._folder)
        self._events.add_hyper_parameters(
            {key: value if isinstance(value, int | float | str) else str(value) for key, value in settings.items()}
        )

    def round(self, record: Row) -> None:
        """Writes the round's figures; a page that is open shows them soon."""
        self._events.add_scalars(round_figures(record), record["round"])

    def end(self, summary: Row | None) -> None:
        """Writes the summary's figures and whether the run succeeded."""
        from odt_sim.trackers.event_file import EventFile

        if summary is not None:
            self._events.add_scalars(summary_figures(summary), summary["rounds"])
        self._events.close()
        end = EventFile(self._folder, END)
        end.add_end(succeeded=summary is not None)
        end.close()
