"""The settings by which reports tell runs apart: overrides as labels show them, and settings of a run's data."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odt_sim.declarations import flatten
from odt_sim.persistence.run import Run

_NOT_SHOWN = re.compile(
    r"seed|strategy|run\.(storage|resume|evaluate_every|target)|model\.(train_groups|embed|gradient_offset)|hydra[./].*"
)
_OF_DATA = ("data", "data.digest", "partition", "fleet.devices", "fleet.unseen", "fleet.evaluated")


def shown_overrides(run: Run) -> dict[str, str]:
    """Return the overrides of a run that labels show, by key, in alphabetical order.

    Seed and strategy are shown elsewhere. Storage, resuming, evaluation, and export settings for a strategy do not
    change the training.
    """
    return {key: value for key, value in sorted(run.overridden.items()) if not _NOT_SHOWN.fullmatch(key)}


def differing_overrides(runs: Sequence[Run]) -> list[str]:
    """Return the shown override keys that have several values among the runs."""
    keys = dict.fromkeys(key for run in runs for key in shown_overrides(run))
    return [key for key in keys if len({_value(run, key) for run in runs}) > 1]


def common_overrides(runs: Sequence[Run], keys: Sequence[str]) -> dict[str, str]:
    """Return the overrides among `keys` that have one value in all runs, as they were written.

    The number of rounds is the actual one: a resumed run may have more rounds than its overrides say.
    """
    shared = [key for key in keys if len({_value(run, key) for run in runs}) == 1]
    written = {key: run.overridden[key] for key in shared for run in reversed(runs) if key in run.overridden}
    return {key: str(_value(runs[0], key)) if key == "run.rounds" else text for key, text in written.items()}


def written_differences(runs: Sequence[Run]) -> list[str]:
    """Return each run's seed and differing overrides as written, also for runs that are not complete."""
    differing = [key for key in differing_overrides(runs) if key != "strategy._target_"]  # part of the name
    keys = ["seed", *(key for key in differing if len({run.overridden.get(key) for run in runs}) > 1)]
    written = (common_overrides([run], keys) for run in runs)
    return [" ".join(f"{key}={value}" for key, value in of_run.items()) for of_run in written]


def short_paths(paths: Sequence[Path]) -> list[str]:
    """Return each path relative to the common folder of all."""
    common = os.path.commonpath([path.resolve() for path in paths])
    return [str(path.resolve().relative_to(common)) for path in paths]


def _value(run: Run, key: str) -> str | None:
    """Return the value of a key in a run, overridden or default; None if unknown. A model's value is its name."""
    if key in run.settings:
        return run.settings[key].rpartition(" ")[0] if key == "model" else run.settings[key]
    if key in run.choices:
        return str(run.choices[key])
    value: Any = run.config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return run.overridden.get(key) if value is None else str(value)


def data_settings(run: Run) -> dict[str, str]:
    """Return the settings that, together with the seed, determine a complete run's devices and their examples.

    Strategy, model, cohort and learning rate are left out: they change how well devices are served, not the devices.
    """
    settings, seeded = run.settings, seeded_data_settings(run)
    recorded = {key: settings[key] for key in _OF_DATA if key in settings}
    if seeded or not run.config:  # a run from Python may draw its data by its seed, too
        recorded.pop("data.digest", None)
    return recorded | seeded


def seeded_data_settings(run: Run) -> dict[str, str]:
    """Return the settings of data that depends on the run's seed (`${seed}`); empty for other data.

    The digest of such data differs from seed to seed, so its settings identify it instead.
    """
    data = run.config.get("data")
    return text_settings("data", data) if "${seed}" in str(data) else {}


def text_settings(group: str, settings: Any) -> dict[str, str]:
    """Return the settings of a group as text, by dotted name; settings of None are left out."""
    return {key: str(value) for key, value in flatten({group: settings}).items() if value is not None}


def data_key(run: Run) -> tuple[tuple[str, str], ...]:
    """Return a key that is equal for runs on the same data."""
    return tuple(sorted(data_settings(run).items()))


def data_digest(run: Run) -> str | None:
    """Return the digest of a run's data; None if unknown."""
    return run.settings.get("data.digest")


def same_data(runs: Sequence[Run], others: Sequence[Run]) -> bool:
    """Return whether runs of equal seeds have equal data, as far as digests are known."""
    known = {(run.complete.seed, data_digest(run)) for run in runs if data_digest(run)}
    return not any(
        seed == run.complete.seed and digest != (data_digest(run) or digest) for run in others for seed, digest in known
    )


def data_difference(run: Run, other: Run) -> str:
    """Return a text on how the data of two runs differs; empty if it is the same."""
    mine, theirs = data_settings(run), data_settings(other)
    keys = [key for key in dict.fromkeys([*mine, *theirs]) if mine.get(key) != theirs.get(key)]
    return "; ".join(f"{key} is {mine.get(key, 'the default')}, not {theirs.get(key, 'the default')}" for key in keys)
