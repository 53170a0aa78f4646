"""The settings that determine a run's result, as text that is the same in every process."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from odt_sim.data.dataset import digest_of
from odt_sim.device.plan import own_learning_rate
from odt_sim.fleet.conditions import Conditions
from odt_sim.settings import READ_BY
from odt_sim.simulation.executors.job import Job


def settings(job: Job, conditions: Conditions | None = None) -> dict[str, str]:
    """Return all settings that determine a run's result, except rounds and seed, by dotted name.

    Args:
        job: The run's job.
        conditions: The conditions of its devices; None for a run without a clock.
    """
    fleet, data, plan = job.fleet, job.data, job.plan
    values = {
        "strategy": job.strategy.name,
        **{f"strategy.{name}": text for name, text in attributes(job.strategy).items()},
        "aggregator": job.aggregator.name,
        **{f"aggregator.{name}": text for name, text in attributes(job.aggregator).items()},
        "model": f"{job.model.name} {job.model.fingerprint[:12]}",
        "data": data.name,
        "data.digest": data.digest or digest_of(data.x, data.y),
        "partition": data.spread,
        "fleet.devices": data.devices,
        "fleet.cohort": fleet.cohort,
        "fleet.unseen": sorted(map(int, fleet.unseen)) if isinstance(fleet.unseen, Sequence) else fleet.unseen,
        "fleet.stragglers": float(fleet.stragglers),
        "fleet.adaptation_steps": fleet.adaptation_steps,
        "fleet.evaluated": fleet.evaluated,
        "fleet.largest_update": fleet.largest_update,
        "fleet.quarantine_after": fleet.quarantine_after,
        "train.epochs": plan.epochs,
        "train.learning_rate": plan.learning_rate
        or ("schedule" if job.model.scheduled else own_learning_rate(job.model)),
        "train.steps": plan.steps,
    }
    if plan.learning_rate_decay != 1:
        values["train.learning_rate_decay"] = plan.learning_rate_decay
    if job.hostile:
        values |= {"fleet.hostile": sorted(job.hostile), "attack": job.attack.name}
        values |= {f"attack.{name}": text for name, text in attributes(job.attack).items()}
    if job.own_metrics:
        values["metrics"] = ", ".join(own.name for own in job.own_metrics)
    if job.metric is not None:
        values["run.metric"] = job.metric
    on_clock = {**conditions.settings, **_schedule(job)} if conditions else {}
    return {**{name: str(value) for name, value in values.items()}, **on_clock}


def _schedule(job: Job) -> dict[str, str]:
    """Return the schedule's settings that its kind reads, except `hours`, which a resumed run may increase."""
    schedule = job.fleet.schedule
    read = [name for name in vars(schedule) if schedule.kind in READ_BY.get(name, (schedule.kind,)) and name != "hours"]
    return {f"fleet.schedule.{name}": str(getattr(schedule, name)) for name in read}


def identity(job: Job, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that must be equal to resume a run, by dotted name; data must match in every example.

    Args:
        job: The run's job.
        settings: The run's `settings`.
    """
    data = job.data
    digest = digest_of(data.indices, data.offsets, data.x, data.y)
    others = {name: text for name, text in settings.items() if name != "model"}  # every checkpoint file names its model
    runtime = (
        {} if job.runtime.name == "litert" else {"backend.runtime": job.runtime.name}
    )  # bits differ, losses do not
    return {"seed": str(job.seed), **others, **runtime, "data": f"{data.name} {digest}"}


def attributes(owner: Any) -> dict[str, str]:
    """Return the texts of an object's attributes, by name without underscores; attributes without a text are left out.

    A private attribute that is None is left out, too: it is often set later.
    """
    values = {name.strip("_"): value for name, value in vars(owner).items() if value is not None or name[0] != "_"}
    texts = {name: text_of(values[name]) for name in sorted(values)}
    return {name: text for name, text in texts.items() if text is not None}


def text_of(value: Any) -> str | None:
    """Return a number, text or array, or a collection or dataclass of these, as text; None for any other value."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return str(value)
    if isinstance(value, np.ndarray):
        return f"array {digest_of(value)}"
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        pairs = [(text_of(key), text_of(item)) for key, item in value.items()]
        return None if any(None in pair for pair in pairs) else f"{{{', '.join(f'{k}: {v}' for k, v in pairs)}}}"
    if not isinstance(value, Sequence | Set):
        return None
    texts = [text for item in value if (text := text_of(item)) is not None]
    if len(texts) < len(value):
        return None
    return f"{{{', '.join(sorted(texts))}}}" if isinstance(value, Set) else f"[{', '.join(texts)}]"
