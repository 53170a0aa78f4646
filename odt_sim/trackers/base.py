"""The contract of a tracker: a tool that shows a run's figures beside those of other runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odt_sim.persistence.records import Row


class Tracker:
    """Receives what a run records; as it stands, it tracks nothing.

    One object tracks one run. What it raises in `start` ends the run before anything has begun; what it raises later is
    reported once, and the run goes on without it: the run's records on disk are complete in any case.

    A new tracker overrides what it needs and is chosen with `tracker._target_=package.module.Class`.
    """

    def start(self, name: str, settings: Mapping[str, Any], folder: Path) -> None:
        """Begins a run, or goes on with the one that an interrupted process began in the same folder.

        Args:
            name: What the run is called; in a sweep it names the job.
            settings: The configuration, flat: `{"run.rounds": 40, "strategy._target_": "..."}`. Values are numbers,
                text, booleans, None or lists.
            folder: The run's folder, which exists, for what the tool keeps on disk.
        """

    def round(self, record: Row) -> None:
        """Takes a line of `rounds.jsonl`, once the round is committed."""

    def end(self, summary: Row | None) -> None:
        """Closes the run.

        Args:
            summary: What stands in `summary.json`; None where the run failed or was interrupted.
        """
