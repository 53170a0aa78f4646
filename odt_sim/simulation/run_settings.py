"""The settings that decide a run's result, as text that is the same in every process."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from odt_sim.data.dataset import digest_of
from odt_sim.device.plan import own_learning_rate
from odt_sim.simulation.job import Job


def settings(job: Job) -> dict[str, str]:
    """Returns what decides a run's outcome, but its rounds and its seed, by the name of the setting.

    Strategy and aggregator are told by their names and plain settings, the data by name, content and how it was spread.
    """
    fleet, data = job.fleet, job.data
    found = {
        "strategy": job.strategy.name,
        **{f"strategy.{name}": words for name, words in plain_attributes(job.strategy).items()},
        "aggregator": job.aggregator.name,
        **{f"aggregator.{name}": words for name, words in plain_attributes(job.aggregator).items()},
        "model": f"{job.model.name} {job.model.fingerprint[:12]}",
        "data": data.name,
        "data.digest": data.digest or digest_of(data.x, data.y),
        "partition": data.spread,
        "fleet.devices": data.devices,
        "fleet.cohort": fleet.cohort,
        "fleet.unseen": fleet.unseen,
        "fleet.stragglers": float(fleet.stragglers),
        "fleet.adaptation_steps": fleet.adaptation_steps,
        "fleet.evaluated": fleet.evaluated,
        "fleet.largest_update": fleet.largest_update,
        "fleet.quarantine_after": fleet.quarantine_after,
        "train.epochs": job.plan.epochs,
        "train.learning_rate": job.plan.learning_rate or own_learning_rate(job.model),
        "train.steps": job.plan.steps,
    }
    return {name: str(value) for name, value in found.items()}


def identity(job: Job, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns what must be the same where a run goes on, by the name of the setting: the data to the example.

    Args:
        job: The run's job.
        settings: What `settings` says of it.
    """
    data = job.data
    known = {name: value for name, value in settings.items() if name != "model"}  # a checkpoint names its own
    return {
        "seed": str(job.seed),
        **known,
        "data": f"{data.name} {digest_of(data.indices, data.offsets, data.x, data.y)}",
    }


def plain_attributes(owner: Any) -> dict[str, str]:
    """Returns an object's attributes that `in_words` can tell; `_mu` is told as `mu`.

    A private None is left out: it is often what is found out only later.
    """
    known = {name.strip("_"): value for name, value in vars(owner).items() if value is not None or name[0] != "_"}
    told = {name: in_words(known[name]) for name in sorted(known)}
    return {name: words for name, words in told.items() if words is not None}


def in_words(value: Any) -> str | None:
    """Returns a number, a text, an array, or a sequence, set, mapping or dataclass of them in words; None for all else."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return str(value)
    if isinstance(value, np.ndarray):
        return f"array {digest_of(value)}"
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        pairs = [(in_words(key), in_words(one)) for key, one in value.items()]
        if any(None in pair for pair in pairs):
            return None
        return f"{{{', '.join(f'{key}: {one}' for key, one in pairs)}}}"
    if not isinstance(value, Sequence | Set):
        return None
    parts = [words for one in value if (words := in_words(one)) is not None]
    if len(parts) < len(value):
        return None
    return f"{{{', '.join(sorted(parts))}}}" if isinstance(value, Set) else f"[{', '.join(parts)}]"
