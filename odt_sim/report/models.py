"""Detection of runs with the same model: exports of a model for different strategies are different files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from odt_sim.persistence.run import Run
from odt_sim.report.data_settings import text_settings

_OF_THE_EXPORT = [[key] for key in ("train_groups", "embed", "gradient_offset", "terms", "name", "sys_path")]
"""Settings of a model that determine what is exported, not what is trained: the second parts of their dotted names."""

CALIBRATION = "fleet.profiles.calibration"
"""The setting with the digest of a file's calibration: other exports of a model have other calibrations."""

Configured = tuple[tuple[str, str], ...]


def with_common_models(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with the same setting `model`, and the same calibration, for all exports of a model.

    Runs have the same model if their files have the same digest (`Summary.model_digest`) and configuration. Runs from
    Python have no configuration, and a digest does not cover everything in a model: if one version of odt_sim ran a
    strategy with several files of the same digest, these stay separate. A run without a digest has the model of another
    run with its file. Calibrations stay apart if one file has several, as when it was measured on several machines.

    Args:
        runs: Complete runs.
    """
    texts: dict[str, str] = {}
    clocks: dict[str, str] = {}
    for members in _of_one_model(runs):
        files = [(run.settings or {})["model"] for run in members]
        name = files[0].rpartition(" ")[0]
        texts |= dict.fromkeys(files, f"{name} {(members[0].complete.model_digest or '')[:12]}")
        clocks |= _common_calibration(members)
    return [_with_model(run, texts, clocks) for run in runs]


def _common_calibration(runs: Sequence[Run]) -> dict[str, str]:
    """Return one calibration for all files of a model; empty if a file has several."""
    found = {(s["model"], s[CALIBRATION]) for run in runs if CALIBRATION in (s := run.settings or {})}
    files = {file for file, _ in found}
    return dict.fromkeys(files, min(digest for _, digest in found)) if len(found) == len(files) > 0 else {}


def _of_one_model(runs: Sequence[Run]) -> list[list[Run]]:
    groups: dict[tuple[str, Configured], list[Run]] = {}
    for run in runs:
        if (digest := run.complete.model_digest) and "model" in (run.settings or {}):
            groups.setdefault((digest, _configured(run)), []).append(run)
    return [group for (_, configured), group in groups.items() if configured or not _ambiguous(group)]


def _configured(run: Run) -> Configured:
    """Return the settings of a run's model from its configuration; empty for a run from Python."""
    settings = text_settings("model", run.config.get("model"))
    trained = (item for item in settings.items() if item[0].split(".")[1:2] not in _OF_THE_EXPORT)
    return tuple(sorted(trained))


def _ambiguous(runs: Sequence[Run]) -> bool:
    """Return whether a version ran one strategy with several files: these may differ in parts that no digest covers."""
    files: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        version = (run.complete.environment or {}).get("odt_sim", "")
        files.setdefault((run.name, version), set()).add((run.settings or {})["model"])
    return any(len(of_strategy) > 1 for of_strategy in files.values())


def _with_model(run: Run, texts: Mapping[str, str], clocks: Mapping[str, str]) -> Run:
    settings = run.settings or {}
    file = settings.get("model", "")
    if file not in texts:
        return run
    clock = {CALIBRATION: clocks[file]} if file in clocks and CALIBRATION in settings else {}
    return replace(run, summary=replace(run.complete, settings={**settings, "model": texts[file], **clock}))
