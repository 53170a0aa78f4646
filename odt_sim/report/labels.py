"""Finding runs, and naming each by what sets it apart from the others."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from odt_sim.errors import CheckpointError
from odt_sim.report.records import is_run_folder
from odt_sim.report.run import Run


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Returns the run folders at or below some folders, each once, in natural order (2 before 10).

    Raises:
        CheckpointError: A folder is missing or holds no run.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        below = sorted(_runs_below(folder), key=_natural)
        if not below:
            raise CheckpointError(f"{folder}: no run found there; give a run's folder, or one that holds runs")
        found |= {path.resolve(): path for path in below if path.resolve() not in found}
    return list(found.values())


def settings_of(run: Run) -> dict[str, str]:
    """Returns a run's overrides other than its seed and strategy, by key in alphabetic order."""
    return {key: value for key, value in sorted(run.settings.items()) if key not in ("seed", "strategy")}


def differing_settings(runs: Sequence[Run]) -> list[str]:
    """Returns the overridden keys, other than seed and strategy, that do not have one value in all runs."""
    settings = [settings_of(run) for run in runs]
    keys = dict.fromkeys(key for some in settings for key in some)
    return [key for key in keys if len({some.get(key) for some in settings}) > 1]


def label(run: Run, keys: Sequence[str]) -> str:
    """Returns a run's strategy, followed by its overrides of `keys`."""
    settings = run.settings
    return " ".join([run.name, *(f"{key}={settings[key]}" for key in keys if key in settings)])


def short_names(paths: Sequence[Path]) -> list[str]:
    """Returns the part of each path that is below the folder common to all."""
    common = os.path.commonpath([path.resolve() for path in paths])
    return [str(path.resolve().relative_to(common)) for path in paths]


def _runs_below(folder: Path) -> Iterable[Path]:
    for parent, below, _ in os.walk(folder):
        if is_run_folder(Path(parent)):
            below.clear()  # what is inside a run is not a run
            yield Path(parent)


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]
