"""Group the runs of a configuration, which differ only in their seed, and label the groups.

Exports of one model for different strategies are different files, and a user's class may change its code between runs,
as in a notebook. The settings by which runs are grouped account for both.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from odt_sim.persistence.run import Run
from odt_sim.report.run_settings import (
    common_overrides,
    data_settings,
    differing_overrides,
    seeded_data_settings,
    short_paths,
    shown_overrides,
    text_settings,
)

_OF_THE_EXPORT = [[key] for key in ("train_groups", "embed", "gradient_offset", "terms", "name", "sys_path")]
"""Settings of a model that determine what is exported, not what is trained: the second parts of their dotted names."""

CALIBRATION = "fleet.profiles.calibration"
"""The setting with the digest of a file's calibration: other exports of a model have other calibrations."""


def group_runs(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each configuration, one per seed, by the configuration's label.

    A label consists of the strategy, the differing overrides, and differences that no override explains: settings, and
    the digests of user classes whose code changed. Runs with the same seed and label become separate groups, named by
    the folders of their sweeps or by their own folders.

    Args:
        runs: Complete runs.
    """
    code = _code_settings(runs)

    def identity(run: Run) -> dict[str, str]:
        return _identity(run) | code(run)

    groups = [
        part
        for group in _grouped(runs, identity)
        # a repeated seed may differ in overrides that do not affect results, such as the backend
        for part in ([group] if _seeds_differ(group) else _grouped(group, shown_overrides))
    ]
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

    If the model depends on the seed, its settings replace its fingerprint and its calibration, which differ from seed to
    seed.
    """
    settings: dict[str, str] = {}
    recorded = ((key, value) for key, value in run.settings.items() if key != "strategy")
    for name, text in (part for key, value in recorded for part in _parts(key, value)):
        # partition and drift may share a name
        settings[name] = f"{settings[name]},{text}" if name in settings else text
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


def _code_settings(runs: Sequence[Run]) -> Callable[[Run], dict[str, str]]:
    """Return a function from a run to those digests of its code, such as `strategy.code`, that differ between runs.

    Digests are compared per class and version of Python, because other versions have other digests.

    Args:
        runs: The runs to compare.
    """
    by_class: dict[tuple[str, str, str], set[str]] = {}
    for run in runs:
        for kind, name, digest in _user_classes(run):
            by_class.setdefault((kind, name, run.code.get("python", "")), set()).add(digest)
    changed = {(kind, name) for (kind, name, _), digests in by_class.items() if len(digests) > 1}
    return lambda run: {f"{kind}.code": digest for kind, name, digest in _user_classes(run) if (kind, name) in changed}


def _user_classes(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the name and the digest of each class of the user."""
    names = {"strategy": run.name, "aggregator": run.settings.get("aggregator", "").partition(" ")[0]}
    for kind, name in names.items():
        if kind in run.code:
            yield kind, name, run.code[kind]


def with_common_models(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with the same setting `model`, and the same calibration, for all exports of a model.

    Runs have the same model if their files have the same digest (`Summary.model_digest`) and configuration. Runs from
    Python have no configuration, and a digest does not cover everything in a model: if one version of odt_sim ran a
    strategy with several files of the same digest, these stay separate. A run without a digest has the model of another
    run with its file. Calibrations stay apart if one file has several, as when it was measured on several machines.

    Args:
        runs: Complete runs.
    """
    models: dict[str, str] = {}
    clocks: dict[str, str] = {}
    for members in _of_one_model(runs):
        files = [run.settings["model"] for run in members]
        name = files[0].rpartition(" ")[0]
        models |= dict.fromkeys(files, f"{name} {(members[0].complete.model_digest or '')[:12]}")
        calibrations = {(s["model"], s[CALIBRATION]) for run in members if CALIBRATION in (s := run.settings)}
        calibrated = {file for file, _ in calibrations}
        if len(calibrations) == len(calibrated) > 0:  # no file has several
            clocks |= dict.fromkeys(calibrated, min(digest for _, digest in calibrations))
    changed = []
    for run in runs:
        settings = dict(run.settings)
        if (file := settings.get("model", "")) in models:
            clock = {CALIBRATION: clocks[file]} if file in clocks and CALIBRATION in settings else {}
            summary = replace(run.complete, settings={**settings, "model": models[file], **clock})
            run = replace(run, summary=summary)
        changed.append(run)
    return changed


def _of_one_model(runs: Sequence[Run]) -> list[list[Run]]:
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Run]] = {}
    for run in runs:
        if (digest := run.complete.model_digest) and "model" in run.settings:
            settings = text_settings("model", run.config.get("model")).items()
            trained = sorted(item for item in settings if item[0].split(".")[1:2] not in _OF_THE_EXPORT)
            groups.setdefault((digest, tuple(trained)), []).append(run)
    return [group for (_, configured), group in groups.items() if configured or not _ambiguous(group)]


def _ambiguous(runs: Sequence[Run]) -> bool:
    """Return whether a version ran one strategy with several files: these may differ in parts that no digest covers."""
    files: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        version = (run.complete.environment or {}).get("odt_sim", "")
        files.setdefault((run.name, version), set()).add(run.settings["model"])
    return any(len(of_strategy) > 1 for of_strategy in files.values())
