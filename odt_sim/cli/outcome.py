"""The outcome of the command `odt-sim run`."""

from dataclasses import dataclass
from pathlib import Path

from odt_sim.errors import OdtSimError


@dataclass
class Outcome:
    """The outcome of a command's jobs.

    Attributes:
        folder: The folder of the run or of the whole sweep; None if no job started.
        error: The error of a single run, kept here because Hydra would print additional lines around an exception.
        failed: The number of failed jobs of a sweep.
        reason: The error message of the last failed job.
    """

    folder: Path | None = None
    error: OdtSimError | None = None
    failed: int = 0
    reason: str | None = None
