"""The base of all trackers."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import Observer, RunInfo


class Tracker(Observer):
    """An observer that is chosen with `tracker._target_=package.module.Class`; it tracks nothing by default."""


def required(module: str, extra: str) -> ModuleType:
    """Import a module of an optional dependency.

    Args:
        module: The module.
        extra: The extra of odt_sim that installs it.

    Raises:
        ConfigurationError: It is not installed, or cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"tracker={extra}: cannot import {module} ({error}); run: pip install 'odt_sim[{extra}]'"
        ) from error


def earlier_run_id(run: RunInfo, tool: str) -> str | None:
    """Return the id of a resumed run in a tool; None for a new run."""
    file = _file(run.folder, tool)
    return file.read_text().strip() if run.recorded and file.exists() else None


def keep_run_id(run: RunInfo, tool: str, run_id: str) -> None:
    """Save the id of a run in a tool, in the run's folder."""
    _file(run.folder, tool).write_text(f"{run_id}\n")


def _file(folder: Path, tool: str) -> Path:
    return folder / f"{tool}_run_id.txt"
