"""Group the runs of a configuration, which differ only in their seed, and label the groups."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from odt_sim.persistence.run import Run
from odt_sim.report.code_settings import code_settings
from odt_sim.report.data_settings import data_settings, seeded_data_settings, text_settings
from odt_sim.report.models import CALIBRATION
from odt_sim.report.overrides import common_overrides, differing_overrides, short_paths, shown_overrides


def group_runs(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each configuration, one per seed, by the configuration's label.

    A label consists of the strategy, the differing overrides, and differences that no override explains: settings, and
    the digests of user classes whose code changed. Runs with the same seed and label become separate groups, named by
    the folders of their sweeps or by their own folders.

    Args:
        runs: Complete runs.
    """
    code = code_settings(runs)

    def identity(run: Run) -> dict[str, str]:
        return _identity(run) | code(run)

    groups = [part for group in _grouped(runs, identity) for part in _split(group)]
    labels = _labels(groups, differing_overrides(runs), identity)
    labelled: dict[str, list[Run]] = {}
    for label in dict.fromkeys(labels):
        of_label = [group for group, other in zip(groups, labels, strict=True) if other == label]
        if len(of_label) == 1 and _seeds_differ(of_label[0]):
            labelled[label] = of_label[0]
        else:
            labelled |= _by_folder(label, of_label)
    return labelled


def _by_folder(label: str, groups: Sequence[Sequence[Run]]) -> dict[str, list[Run]]:
    """Name groups of one label by the folders of their sweeps, or by the runs' own folders if a sweep repeats seeds."""
    parts = [part for group in groups for part in _grouped(group, lambda run: {"sweep": str(run.path.parent)})]
    folders = [part[0].path.parent for part in parts]
    if len(set(folders)) < max(len(parts), 2) or not all(map(_seeds_differ, parts)):
        parts = [[run] for part in parts for run in part]
        folders = [run.path for part in parts for run in part]
    return {f"{label} ({name})": part for name, part in zip(short_paths(folders), parts, strict=True)}


def _identity(run: Run) -> dict[str, str]:
    """Return the settings of a run's configuration by dotted name, without strategy and seed.

    Runs without recorded settings fall back to their overrides. If the model depends on the seed, its settings replace its
    fingerprint and its calibration, which differ from seed to seed.
    """
    if run.settings is None:
        return shown_overrides(run)
    settings: dict[str, str] = {}
    for name, text in (pair for key, value in run.settings.items() if key != "strategy" for pair in _parts(key, value)):
        settings[name] = (
            f"{settings[name]},{text}" if name in settings else text
        )  # partition and drift may share a name
    model = run.config.get("model")
    if "${seed}" in str(model):
        settings.pop("model.fingerprint", None)
        settings.pop(CALIBRATION, None)
        settings |= text_settings("model", model)
    if "data.digest" not in data_settings(run):
        settings.pop("data.digest", None)
    return settings | seeded_data_settings(run)


def _parts(key: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield the separate settings in `partition: dirichlet alpha=0.3` and `model: mlp 1f2e3d4c5b6a`."""
    first, *others = re.split(r" (?=\w+=)", value)
    name, _, fingerprint = first.rpartition(" ") if key == "model" else (first, "", "")
    yield key, name
    if fingerprint:
        yield "model.fingerprint", fingerprint
    for part in others:
        inner, _, text = part.partition("=")
        yield f"{key}.{inner}", text


def _grouped(runs: Sequence[Run], describe: Callable[[Run], Mapping[str, str]]) -> list[list[Run]]:
    """Group the runs of one strategy and description, in the order of each group's first run."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.name, *sorted(describe(run).items())), []).append(run)
    return list(groups.values())


def _split(group: list[Run]) -> list[list[Run]]:
    """Split a group with repeated seeds by overrides that do not affect results, such as the backend."""
    return [group] if _seeds_differ(group) else _grouped(group, shown_overrides)


def _seeds_differ(runs: Sequence[Run]) -> bool:
    return len({run.complete.seed for run in runs}) == len(runs)


def _labels(
    groups: Sequence[Sequence[Run]], keys: Sequence[str], identity: Callable[[Run], Mapping[str, str]]
) -> list[str]:
    """Return a label per group, including the settings in which groups with the same overrides differ."""
    overridden = [common_overrides(group, keys) for group in groups]
    identities = [identity(group[0]) for group in groups]
    labels = []
    for group, own, shown in zip(groups, identities, overridden, strict=True):
        rivals = [(g[0].name, i) for g, i, other in zip(groups, identities, overridden, strict=True) if other == shown]
        added = {key: value for key, value in own.items() if key not in shown and _differs(key, rivals)}
        labels.append(" ".join([group[0].name, *(f"{key}={value}" for key, value in (shown | added).items())]))
    return labels


def _differs(key: str, rivals: Sequence[tuple[str, Mapping[str, str]]]) -> bool:
    """Return whether a setting has several values.

    A strategy's own settings are compared within the strategy. So is the model's file, because a strategy may need a
    special one, such as `lora` with its adapters.
    """
    within = key.startswith("strategy.") or key == "model.fingerprint"
    pairs = {(name if within else "", own[key]) for name, own in rivals if key in own}
    return len(pairs) > len({owner for owner, _ in pairs})
