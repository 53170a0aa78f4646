"""Jobs below a folder, as shown on the live page."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from odt_sim.persistence.run import find_started_runs
from odt_sim.report.run_settings import written_differences
from odt_sim.report.style import colors_of
from odt_sim.watch.job import Job

INTERVAL = 0.5
"""Seconds for which read data are reused, so that many open pages cause no additional reads."""


class Sweep:
    """Runs below a folder; their folders are only read, never written or locked.

    Attributes:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        """Set the folder; nothing is read yet."""
        self.folder = folder
        self._jobs: dict[Path, Job] = {}
        self._labels: Mapping[Path, str] = {}
        self._shown: list[dict[str, Any]] = []
        self._read_at = -INTERVAL
        self._lock = Lock()

    def jobs(self) -> list[dict[str, Any]]:
        """Return `Job.shown` of all jobs, in natural order of their folders; this is thread-safe."""
        with self._lock:
            if time.monotonic() - self._read_at >= INTERVAL:
                self._read()
                self._read_at = time.monotonic()
            return self._shown

    def _read(self) -> None:
        before = self._jobs
        self._jobs = {path: before.get(path) or Job(path) for path in find_started_runs(self.folder)}
        changed = [job.read() for job in self._jobs.values()]
        if any(changed) or self._jobs.keys() != before.keys():
            known = [job for job in self._jobs.values() if job.run]
            written = written_differences([job.run for job in known if job.run])
            self._labels = {job.path: text for job, text in zip(known, written, strict=True)}
        colors = colors_of(job.name for job in self._jobs.values())
        self._shown = [
            job.shown(self._labels.get(path, ""), colors[job.name], os.path.relpath(path, self.folder))
            for path, job in self._jobs.items()
        ]
