"""The id that a tracking tool gave to a run, kept in the run's folder so that a resumed run goes on under it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def earlier_run_id(settings: Mapping[str, Any], folder: Path, tool: str) -> str | None:
    """Returns the id under which an interrupted process tracked this run; None for a run that is not resumed."""
    file = _file(folder, tool)
    return file.read_text().strip() if settings.get("run.resume") is not None and file.exists() else None


def keep_run_id(folder: Path, tool: str, run_id: str) -> None:
    """Keeps the id for a process that resumes the run."""
    _file(folder, tool).write_text(f"{run_id}\n")


def _file(folder: Path, tool: str) -> Path:
    return folder / f"{tool}_run_id.txt"
