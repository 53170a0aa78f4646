"""Label runs by the overrides in which they differ."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odt_sim.persistence.run import Run

_SILENT = re.compile(r"seed|strategy|run\.(storage|resume|evaluate_every|target)|hydra[./].*")


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
