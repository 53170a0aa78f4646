"""Finding runs, and naming each by what sets it apart from the others."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from odt_sim.errors import CheckpointError
from odt_sim.persistence.run import Run
from odt_sim.persistence.run_folder import is_run_folder

_SILENT = re.compile(r"seed|strategy|run\.(storage|resume|evaluate_every|target)|hydra[./].*")


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


def overrides_of(run: Run) -> dict[str, str]:
    """Returns a run's overrides by key, in alphabetic order.

    Without its seed and strategy, and without those that tell only where it is kept and when it is looked at.
    """
    return {key: value for key, value in sorted(run.overridden.items()) if not _SILENT.fullmatch(key)}


def differing_overrides(runs: Sequence[Run]) -> list[str]:
    """Returns the overridden keys, as in `overrides_of`, that did not have one value in all runs."""
    keys = dict.fromkeys(key for run in runs for key in overrides_of(run))
    return [key for key in keys if len({_value(run, key) for run in runs}) > 1]


def details(runs: Sequence[Run], keys: Sequence[str]) -> dict[str, str]:
    """Returns those overrides of `keys` that have one value in all the runs, as they were written.

    The number of rounds is the one that was run: a run may have gone on with more than were written.
    """
    shared = [key for key in keys if len({_value(run, key) for run in runs}) == 1]
    written = {key: run.overridden[key] for key in shared for run in reversed(runs) if key in run.overridden}
    return {key: str(_value(runs[0], key)) if key == "run.rounds" else text for key, text in written.items()}


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


def _value(run: Run, key: str) -> str | None:
    """Returns the value that a key had in a run, by an override or by default; None where it is not known."""
    if run.settings and key in run.settings:
        return run.settings[key]
    if key in run.choices:
        return str(run.choices[key])
    value: Any = run.config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return run.overridden.get(key) if value is None else str(value)
