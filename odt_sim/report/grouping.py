"""Which runs are one configuration, those that differ only in their seed, and by which name it goes."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from odt_sim.persistence.run import Run
from odt_sim.report.conditions import conditions, drawn_by_seed, flat
from odt_sim.report.labels import details, differing_overrides, overrides_of, short_names


def configurations(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Returns for each label the runs of one configuration, one a seed.

    A label is the strategy, the overrides that differ, and the settings that differ where overrides do not. Runs that
    neither seed nor label tells apart are rows of their own, named by their folders.

    Args:
        runs: Complete runs.
    """
    groups = [part for group in _by(runs, _traits) for part in _parted(group)]
    labels = _labels(groups, differing_overrides(runs))
    labelled: dict[str, list[Run]] = {}
    for label in dict.fromkeys(labels):
        together = [run for group, other in zip(groups, labels, strict=True) if other == label for run in group]
        if labels.count(label) == 1 and _seeds_differ(together):
            labelled[label] = together
        else:
            names = short_names([run.path for run in together])
            labelled |= {f"{label} ({name})": [run] for run, name in zip(together, names, strict=True)}
    return labelled


def _traits(run: Run) -> dict[str, str]:
    """Returns what makes a run's configuration, apart from its strategy's name and its seed, by dotted name.

    A run from before summaries had settings is told by its overrides. Where the configuration gives the model the run's
    seed, its weights differ from seed to seed, and what the model was made from stands for them.
    """
    if run.settings is None:
        return overrides_of(run)
    traits = {
        name: text for key, value in run.settings.items() if key != "strategy" for name, text in _parts(key, value)
    }
    model = run.config.get("model")
    if "${seed}" in str(model):
        traits.pop("model.fingerprint", None)
        traits |= dict(flat("model", model))
    if "data.digest" not in conditions(run):
        traits.pop("data.digest", None)
    return traits | drawn_by_seed(run)


def _parts(key: str, value: str) -> Iterator[tuple[str, str]]:
    """Splits `partition: dirichlet alpha=0.3` and `model: mlp 1f2e3d4c5b6a` into one setting each."""
    first, *others = re.split(r" (?=\w+=)", value)
    name, _, fingerprint = first.rpartition(" ") if key == "model" else (first, "", "")
    yield key, name
    if fingerprint:
        yield "model.fingerprint", fingerprint
    for part in others:
        inner, _, text = part.partition("=")
        yield f"{key}.{inner}", text


def _by(runs: Sequence[Run], describe: Callable[[Run], Mapping[str, str]]) -> list[list[Run]]:
    """Returns the runs of one strategy and one description together, in the order of the first of each."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.name, *sorted(describe(run).items())), []).append(run)
    return list(groups.values())


def _parted(group: list[Run]) -> list[list[Run]]:
    """Returns the group, parted by overrides without effect, such as the backend, where a seed was run twice."""
    return [group] if _seeds_differ(group) else _by(group, overrides_of)


def _seeds_differ(runs: Sequence[Run]) -> bool:
    return len({run.summary["seed"] for run in runs if run.summary}) == len(runs)


def _labels(groups: Sequence[Sequence[Run]], keys: Sequence[str]) -> list[str]:
    """Returns a label a group: settings are added where groups of the same overrides differ in them."""
    overridden = [details(group, keys) for group in groups]
    traits = [_traits(group[0]) for group in groups]
    labels = []
    for group, own, shown in zip(groups, traits, overridden, strict=True):
        alike = [(g[0].name, t) for g, t, other in zip(groups, traits, overridden, strict=True) if other == shown]
        added = {key: value for key, value in own.items() if key not in shown and _differs(key, alike)}
        labels.append(" ".join([group[0].name, *(f"{key}={value}" for key, value in (shown | added).items())]))
    return labels


def _differs(key: str, described: Sequence[tuple[str, Mapping[str, str]]]) -> bool:
    """Whether a trait has several values among configurations; a strategy's own is compared within the strategy."""
    pairs = {(name if key.startswith("strategy.") else "", traits[key]) for name, traits in described if key in traits}
    return len(pairs) > len({owner for owner, _ in pairs})
