"""Under which conditions a run was made: on which data, spread over which devices."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odt_sim.persistence.run import Run
from odt_sim.report.labels import overrides_of

_SETTINGS = ("data", "data.digest", "partition", "fleet.devices", "fleet.unseen", "fleet.evaluated")
_GROUPS = ("data", "partition", "drift", "split")


def conditions(run: Run) -> Mapping[str, str]:
    """Returns what decides, together with the seed, which devices there are and which examples each has.

    It is told by a run's settings or, where it recorded none, by its overrides. What else differs (the strategy, the model,
    how many devices train in a round, learning rates) changes how devices are served, not which devices they are.
    """
    if run.settings is not None:
        drawn = drawn_by_seed(run)
        known = {key: run.settings[key] for key in _SETTINGS if key in run.settings}
        if drawn or not run.config:  # a run that was started from Python may have drawn its data by its seed, too
            known.pop("data.digest", None)
        return known | drawn
    overrides = overrides_of(run)
    return {
        key: value for key, value in overrides.items() if key.split(".")[0] in _GROUPS or key in (*_SETTINGS, "fleet")
    }


def drawn_by_seed(run: Run) -> dict[str, str]:
    """Returns what the data was made from, by dotted name, where the configuration gives it the run's seed; else nothing.

    Such data differs from seed to seed, so that its digest does not tell one data set from another.
    """
    data = run.config.get("data")
    return dict(flat("data", data)) if "${seed}" in str(data) else {}


def digest(run: Run) -> str | None:
    """Returns what tells the data set of a run from another that has its name; None where it is not known."""
    return (run.settings or {}).get("data.digest")


def same_data(some: Sequence[Run], others: Sequence[Run]) -> bool:
    """Whether runs of equal seeds are on equal data sets, as far as that is known."""
    known = {(run.complete["seed"], digest(run)) for run in some if digest(run)}
    return not any(
        seed == run.complete["seed"] and one != (digest(run) or one) for run in others for seed, one in known
    )


def flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yields the values of nested settings by dotted name, but for None."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flat(f"{name}.{key}", item)
    elif value is not None:
        yield name, str(value)


def same_conditions(run: Run) -> tuple[Any, ...]:
    """Returns what is equal for runs of equal conditions; a run that recorded settings is not like one that did not."""
    return run.settings is None, *sorted(conditions(run).items())


def difference(one: Run, other: Run) -> str:
    """Returns in words in which conditions two runs differ; empty where they do not."""
    if (one.settings is None) != (other.settings is None):
        return "only one of the two recorded its settings"
    mine, theirs = conditions(one), conditions(other)
    keys = [key for key in dict.fromkeys([*mine, *theirs]) if mine.get(key) != theirs.get(key)]
    return "; ".join(f"{key} is {mine.get(key, 'the default')}, not {theirs.get(key, 'the default')}" for key in keys)
