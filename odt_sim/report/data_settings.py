"""The settings that determine a run's devices and their examples."""

from collections.abc import Mapping, Sequence
from typing import Any

from odt_sim.declarations import flatten
from odt_sim.persistence.run import Run
from odt_sim.report.overrides import shown_overrides

_SETTINGS = ("data", "data.digest", "partition", "fleet.devices", "fleet.unseen", "fleet.evaluated")
_GROUPS = ("data", "partition", "drift", "arrival", "split")


def data_settings(run: Run) -> Mapping[str, str]:
    """Return the settings that, together with the seed, determine a run's devices and their examples.

    Runs without recorded settings fall back to their overrides. Strategy, model, cohort and learning rate are left out:
    they change how well devices are served, not the devices.
    """
    if run.settings is not None:
        seeded = seeded_data_settings(run)
        recorded = {key: run.settings[key] for key in _SETTINGS if key in run.settings}
        if seeded or not run.config:  # a run from Python may draw its data by its seed, too
            recorded.pop("data.digest", None)
        return recorded | seeded
    overrides = shown_overrides(run)
    return {
        key: value for key, value in overrides.items() if key.split(".")[0] in _GROUPS or key in (*_SETTINGS, "fleet")
    }


def seeded_data_settings(run: Run) -> dict[str, str]:
    """Return the settings of data that depends on the run's seed (`${seed}`); empty for other data.

    The digest of such data differs from seed to seed, so its settings identify it instead.
    """
    data = run.config.get("data")
    return text_settings("data", data) if "${seed}" in str(data) else {}


def data_digest(run: Run) -> str | None:
    """Return the digest of a run's data; None if unknown."""
    return (run.settings or {}).get("data.digest")


def same_data(runs: Sequence[Run], others: Sequence[Run]) -> bool:
    """Return whether runs of equal seeds have equal data, as far as digests are known."""
    known = {(run.complete.seed, data_digest(run)) for run in runs if data_digest(run)}
    return not any(
        seed == run.complete.seed and digest != (data_digest(run) or digest) for run in others for seed, digest in known
    )


def text_settings(group: str, settings: Any) -> dict[str, str]:
    """Return the settings of a group as text, by dotted name; settings of None are left out."""
    return {key: str(value) for key, value in flatten({group: settings}).items() if value is not None}


def data_key(run: Run) -> tuple[Any, ...]:
    """Return a key that is equal for runs on the same data; recorded settings never equal overrides."""
    return run.settings is None, *sorted(data_settings(run).items())


def data_difference(run: Run, other: Run) -> str:
    """Return a text on how the data of two runs differs; empty if it is the same."""
    if (run.settings is None) != (other.settings is None):
        return "only one of the two recorded its settings"
    mine, theirs = data_settings(run), data_settings(other)
    keys = [key for key in dict.fromkeys([*mine, *theirs]) if mine.get(key) != theirs.get(key)]
    return "; ".join(f"{key} is {mine.get(key, 'the default')}, not {theirs.get(key, 'the default')}" for key in keys)
